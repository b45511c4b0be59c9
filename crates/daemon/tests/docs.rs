//! The page for those who write plugins, followed.

use crate::follow::follow;
use crate::{PROGRAM, has, plugin, said};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn the_page_on_plugins_does_what_it_says() {
    if !has("clang") || !has("wasm-ld") || !has("minisign") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    // What `lastmeter` does with these commands: it starts `lastmeterd` with the same arguments.
    let script = format!(
        "#!/bin/sh\ncase $1 in run) exec {PROGRAM} model -- \"$@\";; *) exec {PROGRAM} \"$@\";; esac\n"
    );
    let program = programs.join("lastmeter");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/write-a-plugin.md");
    let page = std::fs::read_to_string(page).unwrap();
    let commands = follow(&page, &programs, folder.path());
    assert!(commands >= 10, "{commands}");
}

#[test]
fn every_template_builds_and_passes_its_cases() {
    let folder = tempfile::tempdir().unwrap();
    let target = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = String::from_utf8(target.stdout).unwrap();
    let target = Path::new(sysroot.trim()).join("lib/rustlib/wasm32-unknown-unknown");
    for (lang, present) in [("c", has("clang") && has("wasm-ld")), ("rust", target.exists())] {
        if !present {
            println!("SKIP: no compiler of {lang} for WebAssembly");
            continue;
        }
        for kind in ["packet", "block", "framebuffer", "frame"] {
            let name = format!("{kind}-{lang}");
            let run = |arguments: &[&str]| said(&plugin(folder.path(), arguments), 0);
            run(&["new", &name, "--kind", kind, "--lang", lang]);
            assert!(run(&["build", &name]).contains(kind));
            assert!(run(&["test", &name]).contains("all as they should be"));
        }
    }
}
