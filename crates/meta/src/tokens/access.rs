//! The limits of a token within its volumes: directories below which it stays, and a user as whom it acts.
//!
//! They go with each transaction ([`Tx::act_for`](crate::records::tx::Tx::act_for)), and every look-up of a
//! name in it keeps to them ([`crate::tree::reach`]): nothing can change between the check and the work.

use std::sync::Arc;

use braid_layout::FileId;
use braid_wire::control::{AttributeChanges, EntryKind, NewAttributes, TokenUser};
use braid_wire::token::TokenRole;
use braid_wire::{Reason, Refusal};

use crate::records::schema::{InodeRecord, TokenRecord};
use crate::tokens::permissions::{self, Act, Denied};
use crate::tree::names::show;

/// The limits of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Name of the token.
    token: String,
    /// Directories below which it stays; empty: anywhere.
    roots: Vec<FileId>,
    user: Option<TokenUser>,
}

impl Access {
    /// The limits of this token; `None`: it has none within its volumes.
    pub fn of(token: &TokenRecord) -> Option<Arc<Access>> {
        let is_limited = !token.below.is_empty() || token.user.is_some();
        (token.role == TokenRole::Client && is_limited).then(|| {
            let roots = token.below.clone();
            Arc::new(Access { token: token.name.clone(), roots, user: token.user.clone() })
        })
    }

    /// The directories below which the token stays; empty: anywhere.
    pub fn roots(&self) -> &[FileId] {
        &self.roots
    }

    /// The same directories, for any user.
    pub fn of_anyone(&self) -> Access {
        Access { user: None, ..self.clone() }
    }

    /// Returns true if the token may see all that is in a tree, whoever owns it.
    pub fn sees_all(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.uid == 0)
    }

    /// The refusal for what is not below the token's directories. Whether anything is there is not told.
    pub fn outside(&self, path: &[u8]) -> Refusal {
        let detail = format!(
            "{:?} is not below the directories of token {:?}: name what is below them (braid mount can mount them), or ask \
             an admin for another token (braid token new NAME --below braid://VOLUME/PATH)",
            show(path),
            self.token
        );
        Refusal::new(Reason::NotAllowed, detail)
    }

    /// Ok if the token's user may do this to the file or directory.
    pub fn may(&self, inode: &InodeRecord, act: Act) -> Result<(), Refusal> {
        let what = match act {
            Act::Read => "read",
            Act::Write => "write",
            Act::Search => "look into",
        };
        self.judged(inode, what, |user| permissions::may(user, inode, act))
    }

    /// Ok if the token's user owns the file or directory.
    pub fn owns(&self, inode: &InodeRecord, what: &str) -> Result<(), Refusal> {
        self.judged(inode, what, |user| permissions::owns(user, inode))
    }

    /// Ok if the token's user may take a name of the file out of the directory.
    pub fn may_take(&self, directory: &InodeRecord, inode: &InodeRecord) -> Result<(), Refusal> {
        self.judged(inode, "remove or move", |user| permissions::may_take(user, directory, inode))
    }

    /// Ok if the token's user may make a node of this kind in the directory.
    pub fn may_make(&self, directory: &InodeRecord, kind: EntryKind) -> Result<(), Refusal> {
        self.judged(directory, "make devices in", |user| permissions::may_make(user, kind))
    }

    /// The attributes of something new.
    pub fn owned(&self, new: &NewAttributes) -> NewAttributes {
        self.user.as_ref().map_or(*new, |user| permissions::owned(user, new))
    }

    /// The changes of attributes that the token's user may make of these.
    pub fn changed(
        &self,
        inode: &InodeRecord,
        asked: &AttributeChanges,
    ) -> Result<AttributeChanges, Refusal> {
        let mut changes = *asked;
        self.judged(inode, "change the attributes of", |user| {
            changes = permissions::changed(user, inode, asked)?;
            Ok(())
        })?;
        Ok(changes)
    }

    /// Those of the attributes that come with a new file's name that its user may set.
    pub fn allowed_of(&self, inode: &InodeRecord, asked: &AttributeChanges) -> AttributeChanges {
        self.user.as_ref().map_or(*asked, |user| permissions::allowed_of(user, inode, asked))
    }

    fn judged(
        &self,
        inode: &InodeRecord,
        what: &str,
        judge: impl FnOnce(&TokenUser) -> Result<(), Denied>,
    ) -> Result<(), Refusal> {
        let Some(user) = &self.user else { return Ok(()) };
        let Err(denied) = judge(user) else { return Ok(()) };
        let name = if inode.parent == FileId(0) { "the volume's root".into() } else { show(&inode.name) };
        let detail = format!(
            "user {} (token {:?}) may not {what} {name:?} (owner {}:{}, mode {:o}): its owner can allow it (braid chmod)",
            user.uid, self.token, inode.uid, inode.gid, inode.mode
        );
        let reason = match denied {
            Denied::Bits => Reason::NotAllowed,
            Denied::NotOwner => Reason::NotOwner,
        };
        Err(Refusal::new(reason, detail))
    }
}
