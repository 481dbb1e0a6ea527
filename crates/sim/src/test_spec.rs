//! Specs for tests: parts that take no time, some of which a test then slows down.

use crate::model::{CostModel, Preset, ProtocolModel, StoreModel};
use crate::spec::{Cluster, Files, Load, Run, Spec};
use crate::units::Bytes;

/// A spec of one client, one drive and one file of 1 MiB in units of 4 KiB, where nothing takes time.
pub(crate) fn small() -> Spec {
    Spec {
        title: String::new(),
        seed: 1,
        run: Run::default(),
        cluster: Cluster {
            clients: 1,
            drives: 1,
            drives_per_host: 1,
            rails: 1,
            rail_percents: Vec::new(),
            down: Vec::new(),
        },
        files: Files {
            count: 1,
            size: Bytes(1 << 20),
            scheme: "raid0".to_owned(),
            width: Some(1),
            unit: Bytes(4096),
        },
        parts: free(),
        load: vec![Load::open("load", 1.0, Bytes(4096))],
        sweep: Vec::new(),
    }
}

/// Parts that take no time.
pub(crate) fn free() -> CostModel {
    let free = "free";
    CostModel {
        disk: Preset::preset(free).expect("it is listed"),
        link: Preset::preset(free).expect("it is listed"),
        client: Preset::preset(free).expect("it is listed"),
        drive: Preset::preset(free).expect("it is listed"),
        store: StoreModel::default(),
        protocol: ProtocolModel::default(),
    }
}
