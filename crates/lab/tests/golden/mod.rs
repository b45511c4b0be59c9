//! Goldens: texts that a reviewer has accepted.

/// Compares `text` with the golden at `path`, relative to this crate's folder. With `GOLDENS=accept` in the environment
/// it is rewritten instead; review the difference.
pub(crate) fn check(path: &str, text: &str) {
    let place = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("GOLDENS").is_ok_and(|value| value == "accept") {
        std::fs::write(&place, text).unwrap();
    }
    let golden = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(text == golden, "{path} differs; run with GOLDENS=accept and read the diff\n{text}");
}
