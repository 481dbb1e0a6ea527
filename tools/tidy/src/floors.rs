//! Dependencies between crates point only downward (ARCHITECTURE.md, crate map).

use crate::tree::Source;

/// The crates of each floor, lowest first.
pub const FLOORS: &[&[&str]] = &[
    &["layout", "draw"],
    &["plan", "wire", "schedule", "credit", "datagram", "methods"],
    &["store", "transport", "admission", "meta", "parquet", "wasm"],
    &["drive", "manager", "client", "sim"],
    &["heal"],
    &["bench", "fuse", "nfs", "s3", "python", "object-store", "capi"],
    &["cli", "torture"],
    &["lab"],
];

/// Edges that do not point to a lower floor, from the crates' manifests. `[dev-dependencies]` do not count: a
/// test may start a whole cluster.
pub fn check(manifests: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for manifest in manifests {
        let Some(name) =
            manifest.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some(floor) = floor_of(name) else {
            broken.push(format!("{}: crate {name} has no floor in the crate map", manifest.path));
            continue;
        };
        for used in dependencies(&manifest.text) {
            match floor_of(&used) {
                Some(below) if below < floor => {}
                _ => broken.push(format!("{}: {name} (floor {floor}) may not use {used}", manifest.path)),
            }
        }
    }
    broken
}

fn floor_of(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// The `braid-*` crates in `[dependencies]` and `[build-dependencies]`, without the prefix.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut used = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]" || line.trim() == "[build-dependencies]";
        } else if let Some(rest) = line.strip_prefix("braid-").filter(|_| inside) {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            used.push(rest[..end].to_owned());
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, used: &str) -> Source {
        Source {
            path: format!("crates/{name}/Cargo.toml"),
            text: format!(
                "[package]\nname = \"braid-{name}\"\n[dependencies]\nbraid-{used}.workspace = true\n"
            ),
        }
    }

    #[test]
    fn downward_is_allowed() {
        assert!(check(&[manifest("client", "plan")]).is_empty());
    }

    #[test]
    fn upward_and_sideways_are_not() {
        assert_eq!(check(&[manifest("plan", "client")]).len(), 1);
        assert_eq!(check(&[manifest("client", "drive")]).len(), 1);
        assert_eq!(check(&[manifest("nobody", "layout")]).len(), 1);
    }

    #[test]
    fn tests_may_stand_a_cluster_up() {
        let mut client = manifest("client", "plan");
        client.text.push_str("[dev-dependencies]\nbraid-drive.workspace = true\n");
        assert!(check(&[client]).is_empty());
    }
}
