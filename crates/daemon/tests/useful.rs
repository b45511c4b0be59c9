//! The plugins in `plugins/`: each builds without a warning and passes its cases.

use crate::{has, plugin, said};
use std::path::Path;

/// At least so many are there.
const PLUGINS: usize = 21;

#[test]
fn each_plugin_builds_and_passes_its_cases() {
    if !has("clang") || !has("wasm-ld") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let place = tempfile::tempdir().unwrap();
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("plugin.toml").exists() {
            continue;
        }
        found += 1;
        // A copy, so that nothing is built in the tree.
        let copy = place.path().join(path.file_name().unwrap());
        std::fs::create_dir(&copy).unwrap();
        for file in ["plugin.toml", "plugin.c", "cases.toml"] {
            std::fs::copy(path.join(file), copy.join(file)).unwrap();
        }
        let name = copy.to_str().unwrap();
        said(&plugin(place.path(), &["build", name]), 0);
        said(&plugin(place.path(), &["test", name]), 0);
    }
    assert!(found >= PLUGINS, "{found}");
}
