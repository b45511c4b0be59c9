//! A device whose file names `keys` runs only modules that are signed with one of them.

use lastmeter_device::{camera, disk, display};
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_plugin::index::Version;
use lastmeter_plugin::trust;
use std::path::Path;
use std::sync::Arc;

/// What each of the devices says to a file with a policy that is the module `NAME.wasm`.
fn answers(folder: &Path) -> [String; 3] {
    let host = || Arc::new(Host::new(Limits { instances: 2, ..Limits::default() }).unwrap());
    let rest = "keys = 'keys'\n[clients.anyone]\npolicies = ['own']\n[policies.own]\nmodule = 'own.wasm'\n";
    let disk = disk::server::Config::parse(&format!("memory = true\nsize = '1 MiB'\n{rest}"));
    let display = display::server::Config::parse(&format!("size = '64x64'\n{rest}"));
    let camera = camera::server::Config::parse(rest);
    [
        disk.unwrap().disk(folder, host()).err().unwrap_or_default(),
        display.unwrap().display(folder, host()).err().unwrap_or_default(),
        camera.unwrap().camera(folder, host()).err().unwrap_or_default(),
    ]
}

#[test]
fn every_device_refuses_modules_that_are_not_signed_as_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::create_dir(&keys).unwrap();
    let (public, secret) = trust::new_keys("alice").unwrap();
    let (_, stranger) = trust::new_keys("mallory").unwrap();
    std::fs::write(keys.join("alice.pub"), public).unwrap();
    let module = b"\0asm\x01\0\0\0";
    std::fs::write(folder.path().join("own.wasm"), module).unwrap();
    for answer in answers(folder.path()) {
        assert!(answer.contains("it must be signed"), "{answer}");
    }
    let sign = |secret: &str| {
        let signature = trust::sign(secret, None, "own", Version(1, 0, 0), module).unwrap();
        std::fs::write(folder.path().join("own.wasm.minisig"), signature).unwrap();
        answers(folder.path())
    };
    for answer in sign(&stranger) {
        assert!(answer.contains("own.wasm.minisig: "), "{answer}");
    }
    // Rightly signed, it is read; it is no plugin, though.
    for answer in sign(&secret) {
        assert!(!answer.contains("sign") && answer.contains("lm_"), "{answer}");
    }
}
