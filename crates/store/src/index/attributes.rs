//! An object's attributes as the index stores them: 72 bytes, and one allocation for the map and opaque bytes
//! together.

use braid_layout::{Column, ColumnMask, Generation};

use crate::format::entry::ObjectEntry;
use crate::mutation::{Attributes, Base, OPAQUE_BYTES_MAX};

/// The packed form of [`Attributes`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PackedAttributes {
    pub(crate) set: ColumnMask,
    pub(crate) joining: ColumnMask,
    pub(crate) created_ms: u64,
    pub(crate) modified_ms: u64,
    /// The map, then the opaque bytes.
    bytes: Box<[u8]>,
    pub(crate) unit_bytes: u32,
    pub(crate) g: Generation,
    /// Length of the map, with which `bytes` begins.
    map_bytes: u16,
    pub(crate) column: Column,
    /// Set for few objects.
    rare: Option<Box<Rare>>,
}

/// The attributes of an object that requests are checked against, borrowed from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectState<'a> {
    pub g: Generation,
    /// Columns that every write of the generation must reach.
    pub set: ColumnMask,
    /// The columns of the set that are joining.
    pub joining: ColumnMask,
    /// Shape and components.
    pub map: &'a [u8],
    /// True if it has a cluster.
    pub is_clustered: bool,
}

/// The space that an object reserves, its placement hint, and what it is a still of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rare {
    reserve_bytes: u64,
    cluster: u64,
    base: Option<Base>,
}

impl Rare {
    fn packed(self) -> Option<Box<Rare>> {
        (self != Rare::default()).then(|| Box::new(self))
    }
}

const _: () = assert!(size_of::<PackedAttributes>() == 72, "the index's stated cost");
const _: () = assert!(OPAQUE_BYTES_MAX <= 1 << 15, "a map's length fits in 16 bits");

impl PackedAttributes {
    /// Shape and components.
    pub(crate) fn map(&self) -> &[u8] {
        &self.bytes[..usize::from(self.map_bytes)]
    }

    /// Opaque bytes, which only the manager interprets.
    pub(crate) fn opaque(&self) -> &[u8] {
        &self.bytes[usize::from(self.map_bytes)..]
    }

    /// Bytes to preallocate.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.reserve_bytes)
    }

    /// The cluster hint.
    pub(crate) fn cluster(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.cluster)
    }

    /// Of a still: what it was taken of.
    pub(crate) fn base(&self) -> Option<Base> {
        self.rare.as_ref().and_then(|rare| rare.base)
    }

    /// Makes it a still's.
    pub(crate) fn set_base(&mut self, base: Base) {
        self.rare.get_or_insert_default().base = Some(base);
    }

    /// Gives back what is reserved.
    pub(crate) fn reserve_nothing(&mut self) {
        let Some(rare) = self.rare.as_deref() else { return };
        self.rare = Rare { reserve_bytes: 0, ..*rare }.packed();
    }

    /// Packs map and opaque bytes, at most [`OPAQUE_BYTES_MAX`] each; all else is zero.
    fn with_bytes(map: &[u8], opaque: &[u8]) -> PackedAttributes {
        let bytes = [map, opaque].concat().into_boxed_slice();
        let map_bytes = u16::try_from(map.len()).expect("a map is bounded");
        PackedAttributes { bytes, map_bytes, ..PackedAttributes::default() }
    }

    /// The length of map and opaque bytes together.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The attributes that requests are checked against.
    pub(crate) fn state(&self) -> ObjectState<'_> {
        let g = self.g;
        let is_clustered = self.cluster() != 0;
        ObjectState { g, set: self.set, joining: self.joining, map: self.map(), is_clustered }
    }

    /// The public form, for callers.
    pub(crate) fn unpacked(&self) -> Attributes {
        Attributes {
            unit_bytes: self.unit_bytes,
            column: self.column,
            g: self.g,
            set: self.set,
            joining: self.joining,
            created_ms: self.created_ms,
            modified_ms: self.modified_ms,
            reserve_bytes: self.reserve_bytes(),
            cluster: self.cluster(),
            map: self.map().to_vec(),
            opaque: self.opaque().to_vec(),
            base: self.base(),
        }
    }
}

impl Attributes {
    /// The form that the index stores. The length of the bytes has been checked already.
    pub(crate) fn packed(&self) -> PackedAttributes {
        PackedAttributes {
            set: self.set,
            joining: self.joining,
            created_ms: self.created_ms,
            modified_ms: self.modified_ms,
            unit_bytes: self.unit_bytes,
            g: self.g,
            column: self.column,
            rare: Rare { reserve_bytes: self.reserve_bytes, cluster: self.cluster, base: self.base }.packed(),
            ..PackedAttributes::with_bytes(&self.map, &self.opaque)
        }
    }
}

impl From<&ObjectEntry<'_>> for PackedAttributes {
    fn from(entry: &ObjectEntry<'_>) -> Self {
        PackedAttributes {
            set: entry.set,
            joining: entry.joining,
            created_ms: entry.created_ms,
            modified_ms: entry.modified_ms,
            unit_bytes: entry.unit_bytes,
            g: entry.g,
            column: entry.column,
            rare: Rare { reserve_bytes: entry.reserve_bytes, cluster: entry.cluster, base: None }.packed(),
            ..PackedAttributes::with_bytes(entry.map, entry.opaque)
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::ObjectId;

    use super::*;

    #[test]
    fn packing_loses_nothing() {
        let check = |map: &[u8], opaque: &[u8]| {
            let attributes = Attributes {
                unit_bytes: 4096,
                column: Column(7),
                g: Generation(9),
                set: ColumnMask(0x1f),
                joining: ColumnMask(0x10),
                created_ms: 1000,
                modified_ms: 2000,
                reserve_bytes: 1 << 20,
                cluster: 5,
                map: map.to_vec(),
                opaque: opaque.to_vec(),
                base: Some(Base { object: ObjectId(6), birth: 7, number: 8 }),
            };
            let packed = attributes.packed();
            assert_eq!((packed.map(), packed.opaque()), (map, opaque));
            assert_eq!(packed.heap_bytes(), map.len() + opaque.len());
            assert_eq!(packed.unpacked(), attributes);
        };
        check(b"", b"");
        check(b"map", b"");
        check(b"", b"opaque");
        check(&[1; OPAQUE_BYTES_MAX], &[2; OPAQUE_BYTES_MAX]);
    }
}
