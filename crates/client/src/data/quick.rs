//! Short reads of one unit, whose plan set is a single read: one request, in the session that all callers
//! share, and nothing else. The plan set is a template's ([`braid_plan::Template`]), verified once.
//!
//! A short read that does not succeed at once is repeated in the usual way, from the beginning, which also
//! finds out the reason.

use std::sync::{Arc, Mutex};

use braid_plan::{Class, Placed, Target, Template, Want};
use braid_transport::SHARED_PAYLOAD_BYTES_MAX;
use braid_wire::data::{self, DriveReply, Read};

use crate::handle::Handle;
use crate::peers::drive_requests::Item;
use crate::peers::small_requests::ask;
use crate::view::FileView;

/// Maximum number of templates kept per segment of a view: as many as a segment of 14 columns has, for one
/// length.
const TEMPLATES_MAX: usize = 196;

/// The templates of one segment.
#[derive(Debug, Default)]
pub(crate) struct Templates(Mutex<Vec<Arc<Template>>>);

impl Templates {
    /// The template for reads of this class; `None` if there is none: the usual way finds the reason.
    pub(crate) fn of(&self, target: &Target<'_>, placed: Placed) -> Option<Arc<Template>> {
        if let Some(template) = self.find(&placed.class) {
            return Some(template);
        }
        let template = Arc::new(Template::new(target, placed).ok()?);
        let mut all = self.0.lock().expect("no holder panics");
        if all.len() >= TEMPLATES_MAX {
            all.clear();
        }
        all.push(Arc::clone(&template));
        Some(template)
    }

    fn find(&self, class: &Class) -> Option<Arc<Template>> {
        let all = self.0.lock().expect("no holder panics");
        all.iter().find(|template| template.is_of(class)).cloned()
    }
}

impl Handle {
    /// Fills `buffer` with the file's bytes from `offset` on, if one request brings them. Returns false if
    /// they must be read in the usual way.
    pub(crate) async fn read_quickly(&self, view: &FileView, offset: u64, buffer: &mut [u8]) -> bool {
        let Some(bytes) = u32::try_from(buffer.len()).ok().filter(|&b| b <= SHARED_PAYLOAD_BYTES_MAX) else {
            return false;
        };
        let (segment, layout) = view.layout.segment_at(offset);
        let away = self.avoided(view, segment).or(view.without_grant(segment));
        let target = view.target(segment, away);
        let range = offset..offset + u64::from(bytes);
        let Some(placed) = Placed::of(layout, target.health, &range) else { return false };
        let Some(template) = view.segments[segment].templates.of(&target, placed) else { return false };
        let Some((column, read)) = template.only_read(&placed) else { return false };
        let state = &view.segments[segment].columns[column.index()];
        let Some(grant) = &state.grant else { return false };
        let request = Read {
            at: view.address(segment, column),
            unit: read.stripe.0,
            from: read.from,
            to: read.to,
            want: match read.want {
                Want::Newest => data::Want::Newest,
                Want::Settled => data::Want::Settled,
            },
            exactly: Vec::new(),
            timed: false,
        };
        let mut item = Item { request: request.into(), payload: &[], into: buffer };
        let drives = &self.client.paths.drives;
        let outcome = ask(drives, state.drive, &state.addresses, grant, &mut item).await;
        let Some(Ok(DriveReply::Read(reply))) = outcome else { return false };
        !reply.version.is_zero() || self.was_never_written(view, segment, read.stripe, column).await
    }
}
