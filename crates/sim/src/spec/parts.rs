//! Parts that have a file of their own, as `braid-lab bench calibrate` writes it: a TOML text whose only
//! table is `[parts]`.

use serde::{Deserialize, Serialize};

use super::SpecError;
use crate::model::CostModel;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts<T> {
    parts: T,
}

impl CostModel {
    /// Reads `[parts]` and checks them.
    pub fn parse(text: &str) -> Result<CostModel, SpecError> {
        let found: Parts<CostModel> =
            toml::from_str(text).map_err(|error| SpecError::of_toml(text, &error))?;
        found.parts.check().map_err(|error| error.find_line(text))?;
        Ok(found.parts)
    }

    /// The parts as TOML, which [`CostModel::parse`] reads back.
    pub fn to_toml(&self) -> String {
        toml::to_string(&Parts { parts: self }).expect("parts have only tables, texts and numbers")
    }
}

/// A spec's text with these parts at its end, where they move no other line.
pub(super) fn added(text: &str, parts: &CostModel) -> Result<String, SpecError> {
    let error = SpecError::new("parts", "they are handed in beside the spec: leave one of the two out");
    let error = error.find_line(text);
    if error.line.is_some() {
        return Err(error);
    }
    Ok(format!("{text}\n{}", parts.to_toml()))
}

#[cfg(test)]
mod tests {
    use crate::Spec;
    use crate::model::CostModel;

    const CLUSTER: &str = include_str!("../../../../docs/sim/cluster.toml");

    #[test]
    fn a_spec_with_its_parts_elsewhere_is_the_same() {
        let whole = Spec::parse(CLUSTER).expect("the example");
        let parts = CostModel::parse(&whole.parts.to_toml()).expect("what was written");
        assert_eq!(parts, whole.parts);
        let start = CLUSTER.find("[parts]").expect("it is there");
        let end = CLUSTER.find("[[load]]");
        let without = format!("{}{}", &CLUSTER[..start], &CLUSTER[end.expect("it is there")..]);
        let (spec, text) = Spec::parse_with(&without, &parts).expect("the same spec");
        assert_eq!(spec, whole);
        assert_eq!(Spec::parse(&text), Ok(whole));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let parts = Spec::parse(CLUSTER).expect("the example").parts;
        let twice = Spec::parse_with(CLUSTER, &parts).expect_err("there are two").to_string();
        assert!(twice.contains("line 23: parts: they are handed in beside the spec"), "{twice}");
        let bad = parts.to_toml().replace("lanes = 1", "lanes = 0");
        let bad = CostModel::parse(&bad).expect_err("no lane").to_string();
        assert!(bad.contains("parts.disk.lanes: 0 is not possible"), "{bad}");
        let other = CostModel::parse("[part]\n").expect_err("no parts").to_string();
        assert!(other.contains("unknown field `part`"), "{other}");
        let sweep = CLUSTER.replace("[parts]", "[files.x]");
        assert!(Spec::parse_with(&sweep, &parts).is_err());
    }
}
