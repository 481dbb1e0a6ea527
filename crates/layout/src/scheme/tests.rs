use super::*;

const UNIT: u32 = 512 << 10;

fn check(text: &str, width: Option<u8>, expected: (Scheme, u8, u8)) {
    let shape = Shape::parse(text, width, UNIT).unwrap_or_else(|error| panic!("{text} {width:?}: {error}"));
    assert_eq!((shape.scheme(), shape.k(), shape.m()), expected, "{text} {width:?}");
    assert_eq!(shape.unit_bytes(), UNIT);
}

fn refused(text: &str, width: Option<u8>, expected: &str) {
    let error = Shape::parse(text, width, UNIT).expect_err(text);
    assert_eq!(error.to_string(), expected, "{text} {width:?}");
}

#[test]
fn schemes_as_people_write_them() {
    check("raid0", Some(6), (Scheme::Raid0, 6, 0));
    check("raid0:64", None, (Scheme::Raid0, 64, 0));
    check("raid1", Some(2), (Scheme::Raid1, 1, 1));
    check("raid1", Some(5), (Scheme::Raid1, 1, 4));
    check("raid1(1,2)", Some(3), (Scheme::Raid1, 1, 2));
    check("RAID4", Some(3), (Scheme::Raid4, 2, 1));
    check(" raid5 ", Some(5), (Scheme::Raid5, 4, 1));
    check("raid5:4+1", None, (Scheme::Raid5, 4, 1));
    check("rs(4,2)", None, (Scheme::Rs, 4, 2));
    check("RS( 4, 2 )", Some(6), (Scheme::Rs, 4, 2));
    for text in ["rs:4,2", "rs:4+2", "rs4+2", "rs4,2", "rs 4+2", "rs(4+2)"] {
        check(text, None, (Scheme::Rs, 4, 2));
    }
    check("rs(60,4)", None, (Scheme::Rs, 60, 4));
}

#[test]
fn the_default_is_the_widest_that_fits() {
    let shapes = (0..8).map(Shape::default_on);
    let found: Vec<_> = shapes.map(|shape| shape.map_or(String::new(), |it| it.to_string())).collect();
    let wide = "raid5 4+1";
    assert_eq!(found, ["", "raid0 1", "raid1 1+1", "raid5 2+1", "raid5 3+1", wide, wide, wide]);
    for shape in (1..8).filter_map(Shape::default_on) {
        assert_eq!(Shape::new(shape.scheme, shape.k, shape.m, shape.unit_bytes), Ok(shape));
    }
}

#[test]
fn what_is_displayed_can_be_read_back() {
    for (scheme, k, m) in [
        (Scheme::Raid0, 64, 0),
        (Scheme::Raid1, 1, 4),
        (Scheme::Raid4, 4, 1),
        (Scheme::Raid5, 63, 1),
        (Scheme::Rs, 10, 4),
    ] {
        let shape = Shape::new(scheme, k, m, UNIT).expect("valid");
        assert_eq!(Shape::parse(&shape.to_string(), None, UNIT), Ok(shape));
        assert_eq!(Shape::parse(&shape.to_string(), Some(k + m), UNIT), Ok(shape));
    }
}

#[test]
fn unknown_names_and_forms_are_refused() {
    for text in ["", "raid", "raid6", "raid10", "raid54+1", "rsa(4,2)", "mirror", "5"] {
        refused(
            text,
            Some(5),
            &format!("unknown scheme \"{text}\": use raid0, raid1, raid4, raid5 or rs(k,m)"),
        );
    }
    let of_rs = "write rs(k,m), such as rs(4,2) for 4 data and 2 parity columns";
    for text in
        ["rs", "rs()", "rs(4", "rs(4;2)", "rs(,2)", "rs(4,2,1)", "rs(4,+2)", "rs(-4,2)", "rs(300,2)", "rs:4"]
    {
        let expected = format!("\"{text}\" is not a way to write rs: {of_rs}");
        refused(text, None, &expected);
    }
    refused(
        "raid5:4",
        None,
        "\"raid5:4\" is not a way to write raid5: write raid5 with a width, or raid5:4+1 for 4 data columns and one parity",
    );
}

#[test]
fn widths_and_numbers_that_do_not_fit_are_refused() {
    refused(
        "raid5",
        None,
        "raid5 needs a width: the number of drives a file is spread over, parity or copies included",
    );
    refused(
        "rs(4,2)",
        Some(5),
        "\"rs(4,2)\" has 6 columns, but the width given is 5: leave the width out or make them agree",
    );
    refused(
        "raid0:4",
        Some(6),
        "\"raid0:4\" has 4 columns, but the width given is 6: leave the width out or make them agree",
    );
    refused(
        "raid5",
        Some(2),
        "raid5 with 1 data and 1 parity columns is not possible: raid4 and raid5 have 2 to 63 data columns and one parity",
    );
    refused(
        "raid5",
        Some(65),
        "raid5 with 64 data and 1 parity columns is not possible: at most 64 columns in all",
    );
    refused(
        "raid5",
        Some(0),
        "raid5 with 0 data and 1 parity columns is not possible: raid4 and raid5 have 2 to 63 data columns and one parity",
    );
    refused(
        "raid1",
        Some(1),
        "raid1 with 1 data and 0 parity columns is not possible: raid1 has one data column and 1 to 4 copies of it",
    );
    refused(
        "raid0",
        Some(0),
        "raid0 with 0 data and 0 parity columns is not possible: raid0 has 1 to 64 data columns and no parity",
    );
    refused(
        "rs(200,200)",
        None,
        "rs with 200 data and 200 parity columns is not possible: at most 4 parity columns",
    );
    refused(
        "rs(255,4)",
        None,
        "rs with 255 data and 4 parity columns is not possible: at most 64 columns in all",
    );
    refused(
        "rs(4,0)",
        None,
        "rs with 4 data and 0 parity columns is not possible: rs(k,m) has at least one data column and 1 to 4 parity",
    );
}

#[test]
fn units_are_powers_of_two_within_bounds() {
    for unit in [4 << 10, 8 << 10, 64 << 20] {
        assert_eq!(Shape::parse("raid5", Some(5), unit).map(|shape| shape.unit_bytes()), Ok(unit));
    }
    for unit in [0, 1, 2 << 10, 5000, 12 << 10, 128 << 20, u32::MAX] {
        let expected = format!("unit of {unit} bytes: it must be a power of two from 4K to 64M");
        assert_eq!(Shape::parse("raid5", Some(5), unit).expect_err("refused").to_string(), expected);
    }
}

#[test]
fn numbers_in_formats_name_one_scheme_each() {
    let known: Vec<u8> = (0..=255).filter(|number| Scheme::from_number(*number).is_ok()).collect();
    assert_eq!(known, [0, 1, 4, 5, 16]);
    for number in known {
        assert_eq!(Scheme::from_number(number).map(Scheme::number), Ok(number));
    }
    assert_eq!(Scheme::from_number(6), Err(SchemeError::UnknownNumber(6)));
}
