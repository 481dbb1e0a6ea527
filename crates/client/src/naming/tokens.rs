//! Tokens: their making, their list and their end.

use braid_layout::TokenId;
use braid_wire::capability::Key;
use braid_wire::control::{ControlReply, TokenNew, TokenRevoke, TokenRow, TokenUser, Tokens};
use braid_wire::token::{Token, TokenRole};

use crate::client::{Client, random, unexpected};
use crate::error::{Error, Result};
use crate::naming::name::Name;

/// The rights and the name of a new token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSpec {
    /// Name of the token, for people.
    pub name: String,
    /// The kind of rights that it gives.
    pub role: TokenRole,
    /// Names of the volumes for which a client's token is; `None`: all.
    pub volumes: Option<Vec<String>>,
    /// Directories to which a client's token is confined; empty: none. The volumes are theirs then.
    pub below: Vec<Name>,
    /// The user to whom a client's token is bound; `None`: none.
    pub user: Option<TokenUser>,
    /// True if a client's token changes nothing.
    pub read_only: bool,
    /// Seconds from now to its end; 0: none.
    pub lasts_s: u64,
}

impl Client {
    /// Makes a token. Its secret is drawn here and known to nobody but the holder of the answer and the
    /// manager; it cannot be asked for again.
    pub async fn make_token(&self, spec: TokenSpec) -> Result<Token> {
        let subject = format!("token {}", spec.name);
        let id = TokenId(random()?);
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Error::Answer {
            subject: "this machine's random numbers".to_owned(),
            why: error.to_string(),
        })?;
        let TokenSpec { name, role, volumes, below: names, user, read_only, lasts_s } = spec;
        let mut below = Vec::with_capacity(names.len());
        for name in &names {
            below.push(self.place(name).await?);
        }
        let secret = Key::new(secret);
        let new =
            TokenNew { name, id, secret: secret.clone(), role, volumes, below, user, read_only, lasts_s };
        let expires_s = match self.ask_manager(&subject, new).await? {
            ControlReply::TokenMade(made) => made.expires_s,
            other => return Err(unexpected(&subject, &other)),
        };
        Ok(Token { role, pin: self.config().credentials.pin, id, secret, expires_s })
    }

    /// All tokens on record, without their secrets, by name.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>> {
        let subject = "the cluster";
        let mut tokens: Vec<TokenRow> = Vec::new();
        loop {
            let after = tokens.last().map_or(TokenId::NONE, |row| row.id);
            let page = match self.ask_manager(subject, Tokens { after }).await? {
                ControlReply::Tokens(page) => page,
                other => return Err(unexpected(subject, &other)),
            };
            let more = page.more && !page.tokens.is_empty();
            tokens.extend(page.tokens);
            if !more {
                break;
            }
        }
        tokens.sort_by(|a, b| (&a.name, a.made_ms).cmp(&(&b.name, b.made_ms)));
        Ok(tokens)
    }

    /// Ends a token now, with all that is open with it.
    pub async fn revoke_token(&self, name: &str) -> Result<()> {
        self.ask_done(&format!("token {name}"), TokenRevoke { name: name.to_owned() }).await
    }
}
