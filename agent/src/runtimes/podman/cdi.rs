//! The Container Device Interface: files by which a host describes how containers get at its devices
//! (<https://github.com/cncf-tags/container-device-interface>).

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// Where podman looks.
pub(super) const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// What NVIDIA's toolkit describes.
pub(super) const ACCELERATORS: &str = "nvidia.com/gpu";

#[derive(Deserialize)]
struct Specification {
    kind: String,
}

/// Whether a specification in `folders` is of devices of `kind`.
pub(super) fn describes<P: AsRef<Path>>(folders: impl IntoIterator<Item = P>, kind: &str) -> bool {
    let entries = folders.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| {
        let is_one = path.extension().is_some_and(|end| ["yaml", "json"].iter().any(|it| end == *it));
        // JSON is YAML too.
        let text = fs::read_to_string(&path).ok().filter(|_| is_one);
        text.and_then(|text| serde_yaml::from_str::<Specification>(&text).ok())
            .is_some_and(|it| it.kind == kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_is_known_by_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let is_there = || describes([Path::new("/no/such/folder"), dir.path()], ACCELERATORS);
        write("net.yaml", "cdiVersion: 0.5.0\nkind: vendor.com/net\n");
        write("nvidia.yaml.bak", "kind: nvidia.com/gpu\n");
        write("broken.json", "{");
        assert!(!is_there());
        write(
            "nvidia.json",
            r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all"}]}"#,
        );
        assert!(is_there());
    }
}
