//! The facts known of an object, and its e_tag.

use braid_client::Seen;
use braid_layout::FileId;
use braid_wire::control::FileAttributes;

/// A file as an object of the store.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) number: FileId,
    pub(crate) attributes: FileAttributes,
    /// Number of the snapshot that shows the file so; 0: it is so now.
    pub(crate) snapshot: u32,
}

impl Object {
    pub(crate) fn size(&self) -> u64 {
        self.attributes.size
    }

    pub(crate) fn modified_ns(&self) -> i64 {
        self.attributes.modified_ns
    }

    /// The tag of the object's content: the file's number, the time when anything of the file changed last,
    /// and its size, each hexadecimal. The manager gives every change of a file a later time, so no two
    /// contents share a tag. A rename or a change of permissions also makes a new tag: a comparison of tags
    /// then reports too much, not too little.
    pub(crate) fn e_tag(&self) -> String {
        let FileAttributes { changed_ns, size, .. } = self.attributes;
        format!("{:x}-{:x}-{size:x}", self.number.0, changed_ns.cast_unsigned())
    }
}

/// Parses a tag into the file and the change that it was made of; `None` if the text is not a tag of this
/// store.
pub(crate) fn seen(e_tag: &str) -> Option<Seen> {
    let mut parts = e_tag.split('-').map(|part| u64::from_str_radix(part, 16));
    let (Some(Ok(file)), Some(Ok(changed)), Some(Ok(_)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    Some(Seen { file: FileId(file), changed_ns: changed.cast_signed() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::control::EntryKind;

    fn object(changed_ns: i64) -> Object {
        let attributes = FileAttributes {
            kind: EntryKind::File,
            mode: 0o644,
            uid: 1,
            gid: 1,
            links: 1,
            size: 300,
            device: 0,
            has_xattrs: false,
            accessed_ns: 1,
            modified_ns: 2,
            changed_ns,
            created_ns: 1,
            sealed: false,
        };
        Object { number: FileId(77), attributes, snapshot: 0 }
    }

    #[test]
    fn a_tag_tells_what_it_was_made_of() {
        for changed_ns in [0, 1_700_000_000_123_456_789, -5] {
            let tag = object(changed_ns).e_tag();
            assert_eq!(seen(&tag), Some(Seen { file: FileId(77), changed_ns }), "{tag}");
        }
        assert_ne!(object(1).e_tag(), object(2).e_tag());
    }

    #[test]
    fn other_texts_are_no_tags() {
        for text in ["", "1-2", "1-2-3-4", "x-2-3", "\"1-2-3\"", "*"] {
            assert_eq!(seen(text), None, "{text}");
        }
    }
}
