//! Shapes of volumes and files from requests, and drives for them. Pure.

use braid_layout::placement::{Candidate, PlacementVersion, choose, choose_beside};
use braid_layout::scheme::UNIT_BYTES_DEFAULT;
use braid_layout::{ColumnMask, DriveId, Shape};
use braid_wire::control::ShapeSpec;
use braid_wire::{Reason, Refusal};

/// Chooses the drives for a new file's columns, from its number and shape, and the columns that are out from
/// the start.
pub type ChooseDrives<'a> = &'a dyn Fn(u64, &Shape) -> Result<(Vec<DriveId>, ColumnMask), Refusal>;

/// The requested shape. Fields that the request leaves open (`k` = 0, unit = 0) are taken from `default`.
pub fn from_spec(spec: &ShapeSpec, default: &ShapeSpec) -> Result<Shape, Refusal> {
    let base = if spec.k == 0 { default } else { spec };
    let unit_bytes = match (spec.unit_bytes, base.unit_bytes) {
        (0, 0) => UNIT_BYTES_DEFAULT,
        (0, of_default) => of_default,
        (asked, _) => asked,
    };
    let spec = ShapeSpec { unit_bytes, ..base.clone() };
    spec.shape().map_err(|error| Refusal::new(Reason::BadScheme, error.to_string()))
}

/// The shape of a volume whose request names none, for this number of drives.
pub fn default_spec(drives: usize) -> Result<ShapeSpec, Refusal> {
    let none = || Refusal::new(Reason::TooFewDrives, "no drive has joined yet: add one first");
    Shape::default_on(drives).map(ShapeSpec::from).ok_or_else(none)
}

/// Refuses a shape with more columns than there are drives.
pub fn check_width(shape: &Shape, drives: usize) -> Result<(), Refusal> {
    let width = usize::from(shape.width());
    if width <= drives {
        return Ok(());
    }
    let detail =
        format!("{shape} needs {width} drives, and there are {drives}: add drives or use a narrower scheme");
    Err(Refusal::new(Reason::TooFewDrives, detail))
}

/// Chooses drives for a new file's columns: drives that are up, and drives that are away only if those are
/// too few.
pub fn drives_for(
    seed: u64,
    shape: &Shape,
    up: &[Candidate],
    away: &[Candidate],
) -> Result<Vec<DriveId>, Refusal> {
    check_width(shape, up.len() + away.len())?;
    let width = shape.width();
    let from_up = u8::try_from(up.len()).unwrap_or(u8::MAX).min(width);
    let failed = |error: braid_layout::placement::PlacementError| {
        Refusal::new(Reason::TooFewDrives, error.to_string())
    };
    let mut drives = choose(PlacementVersion::V1, seed, from_up, up).map_err(failed)?;
    if from_up < width {
        let more = choose_beside(PlacementVersion::V1, seed, up, width - from_up, away).map_err(failed)?;
        drives.extend(more);
    }
    Ok(drives)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ids: std::ops::Range<u128>) -> Vec<Candidate> {
        ids.map(|id| Candidate { drive: DriveId(id), weight: 1, domain: vec![format!("host-{id}")] })
            .collect()
    }

    #[test]
    fn a_volume_without_a_shape_gets_the_widest_that_fits() {
        assert_eq!(default_spec(0).unwrap_err().reason, Reason::TooFewDrives);
        (1..8).for_each(|n| {
            let spec = default_spec(n).unwrap();
            check_width(&from_spec(&spec, &spec).unwrap(), n).unwrap();
        });
    }

    #[test]
    fn what_was_not_asked_for_is_the_default() {
        let default = default_spec(5).unwrap();
        let spec_of = |spec: &ShapeSpec| ShapeSpec::from(from_spec(spec, &default).unwrap());
        assert_eq!(spec_of(&ShapeSpec::DEFAULT), default);
        let unit = ShapeSpec { unit_bytes: 4096, ..ShapeSpec::DEFAULT };
        assert_eq!(spec_of(&unit), ShapeSpec { unit_bytes: 4096, ..default });
        for (scheme, k, m, unit_bytes) in
            [(9, 4, 1, 0), (5, 1, 1, 0), (5, 4, 1, 5000), (5, 4, 1, 2048), (16, 64, 4, 0)]
        {
            let spec = ShapeSpec { scheme, k, m, unit_bytes };
            assert_eq!(from_spec(&spec, &default).unwrap_err().reason, Reason::BadScheme, "{spec:?}");
        }
    }

    #[test]
    fn drives_that_are_away_are_the_last_resort() {
        let shape = from_spec(&default_spec(5).unwrap(), &default_spec(5).unwrap()).unwrap();
        for seed in 0..50 {
            let drives = drives_for(seed, &shape, &candidates(0..5), &candidates(5..9)).unwrap();
            assert!(drives.iter().all(|drive| drive.0 < 5));
            let drives = drives_for(seed, &shape, &candidates(0..4), &candidates(4..9)).unwrap();
            assert_eq!(drives.iter().filter(|drive| drive.0 < 4).count(), 4);
            assert_eq!(drives.len(), 5);
        }
        let refusal = drives_for(1, &shape, &candidates(0..3), &candidates(3..4)).unwrap_err();
        assert!(refusal.detail.contains("5 drives") && refusal.detail.contains("are 4"), "{refusal}");
    }

    #[test]
    fn new_files_are_spread_evenly() {
        let shape = Shape::parse("raid5:4+1", None, 4096).unwrap();
        let mut counts = [0u32; 12];
        for seed in 0..2400 {
            for drive in drives_for(seed, &shape, &candidates(0..12), &[]).unwrap() {
                counts[usize::try_from(drive.0).unwrap()] += 1;
            }
        }
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
    }
}
