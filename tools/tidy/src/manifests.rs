//! Versions stand in one place, and each dependency has a reason.

use crate::tree::Source;

/// Dependencies of a crate that do not come from the workspace's list.
pub fn check(manifests: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for manifest in manifests.iter().filter(|manifest| manifest.path != "Cargo.toml") {
        let mut inside = false;
        for line in manifest.text.lines() {
            if line.starts_with('[') {
                inside = line.contains("dependencies]");
            } else if inside
                && line.contains('=')
                && !line.starts_with('#')
                && !line.contains("workspace = true")
            {
                broken.push(format!("{}: \"{line}\" has a version of its own", manifest.path));
            }
        }
    }
    broken
}

/// External dependencies of the workspace for which ARCHITECTURE.md gives no reason.
pub fn reasons(workspace: &str, architecture: &str) -> Vec<String> {
    listed(workspace)
        .filter(|name| !name.starts_with("braid-") && !architecture.contains(&format!("`{name}`")))
        .map(|name| format!("ARCHITECTURE.md: no reason is given for the dependency `{name}`"))
        .collect()
}

/// Dependencies in the workspace's list that no crate uses.
pub fn unused(workspace: &str, manifests: &[Source]) -> Vec<String> {
    listed(workspace)
        .filter(|name| {
            let forms = [format!("{name}.workspace = true"), format!("{name} = {{ workspace = true,")];
            let names = |line: &str| line == forms[0] || line.starts_with(&forms[1]);
            !manifests.iter().any(|manifest| manifest.text.lines().any(names))
        })
        .map(|name| format!("Cargo.toml: no crate uses `{name}`"))
        .collect()
}

/// The names in `[workspace.dependencies]`.
fn listed(workspace: &str) -> impl Iterator<Item = &str> {
    workspace
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_its_own_is_found() {
        let path = "crates/x/Cargo.toml".to_owned();
        let text = "[dependencies]\nbytes = \"1\"\ntokio.workspace = true\n".to_owned();
        assert_eq!(check(&[Source { path, text }]).len(), 1);
    }

    #[test]
    fn a_dependency_without_reason_is_found() {
        let workspace = "[workspace.dependencies]\nbytes = \"1\"\ntokio = \"1\"\n";
        assert_eq!(reasons(workspace, "`tokio`: runtime").len(), 1);
    }

    #[test]
    fn an_unused_dependency_is_found() {
        let workspace = "[workspace.dependencies]\nbytes = \"1\"\ntokio = \"1\"\n[profile.dev]\nx = 1\n";
        let text = "[dependencies]\ntokio.workspace = true\n".to_owned();
        assert_eq!(unused(workspace, &[Source { path: "crates/x/Cargo.toml".into(), text }]).len(), 1);
    }

    #[test]
    fn a_dependency_with_features_is_used() {
        let workspace = "[workspace.dependencies]\ntokio = \"1\"\ntoki = \"1\"\n";
        let text = "[dependencies]\ntokio = { workspace = true, optional = true }\n".to_owned();
        let broken = unused(workspace, &[Source { path: "crates/x/Cargo.toml".into(), text }]);
        assert_eq!(broken, ["Cargo.toml: no crate uses `toki`"]);
    }
}
