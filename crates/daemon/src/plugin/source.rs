//! A plugin's folder: what `plugin.toml` says, and how its source becomes a module.

use super::{Complaint, kind, read, read_text};
use lastmeter_plugin::Kind;
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::index::{Version, is_name};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interface for C.
pub(super) const HEADER: &str = include_str!("../../../../plugins/include/lastmeter.h");
/// The interface for Rust.
pub(super) const MODULE: &str = include_str!("../../../../plugins/include/lastmeter.rs");
/// The longest source that is read rather than handed to a compiler.
const SOURCE_LEN_MAX: usize = 1 << 20;

/// `plugin.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    version: String,
    kind: String,
    source: PathBuf,
}

/// A plugin's folder.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) folder: PathBuf,
    source: PathBuf,
}

impl Source {
    pub(super) fn read(folder: &Path) -> Result<Source, Complaint> {
        let path = folder.join("plugin.toml");
        let wrong = |what: String| Complaint(format!("{}: {what}", path.display()));
        let text = read_text(&path, SOURCE_LEN_MAX)?;
        let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let File { name, version, kind: named, source } = file;
        if !is_name(&name) {
            return Err(wrong(format!("{name:?} is no name: lower-case letters, digits and `-`")));
        }
        let parsed = Version::parse(&version);
        let version =
            parsed.ok_or_else(|| wrong(format!("{version:?} is no version, as 1.2.0")))?;
        let kind = kind(&named).map_err(wrong)?;
        Ok(Source { name, version, kind, folder: folder.to_owned(), source })
    }
    /// Where its module lies once it is built.
    pub(super) fn module(&self) -> PathBuf {
        self.folder.join(&self.name).with_extension("wasm")
    }
    /// Compiles it.
    pub(super) fn build(&self) -> Result<PathBuf, Complaint> {
        let out = self.module();
        compile(&self.folder.join(&self.source), self.kind, &out)?;
        Ok(out)
    }
}

/// Compiles a source by what its name ends in.
pub(super) fn compile(source: &Path, kind: Kind, out: &Path) -> Result<(), Complaint> {
    match source.extension().and_then(|end| end.to_str()) {
        Some("c") => c(source, out),
        Some("rs") => rust(source, out),
        Some("lisp") => {
            let text = read_text(source, lastmeter_plugin::expression::TEXT_LEN_MAX)?;
            let name = source.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let expression = Expression::new(&name.unwrap_or_default(), kind, &text);
            let place = |wrong: &lastmeter_plugin::expression::Wrong| wrong.describe(&text);
            let expression = expression
                .map_err(|wrong| Complaint(format!("{}: {}", source.display(), place(&wrong))))?;
            super::write(out, &expression.compile())
        }
        Some("wat") => {
            let bytes = read(source, SOURCE_LEN_MAX)?;
            let module = wat::parse_bytes(&bytes);
            let module = module.map_err(|error| format!("{}: {error}", source.display()))?;
            super::write(out, &module)
        }
        _ => {
            let source = source.display();
            Err(Complaint(format!("{source}: a source ends in .c, .rs, .lisp or .wat")))
        }
    }
}

fn c(source: &Path, out: &Path) -> Result<(), Complaint> {
    // The header may stand beside the source; here it is for sources that have none.
    let include = std::env::temp_dir().join(format!("lastmeter-include-{}", std::process::id()));
    super::write(&include.join("lastmeter.h"), HEADER.as_bytes())?;
    let mut clang = Command::new("clang");
    clang.args([
        "--target=wasm32-unknown-unknown",
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-nostdlib",
        "-ffreestanding",
        "-mbulk-memory",
        "-Wl,--no-entry",
        "-Wl,--strip-all",
        "-Wl,--export=lm_plugin",
        "-Wl,--stack-first",
        "-Wl,-z,stack-size=32768",
    ]);
    clang.arg("-I").arg(&include).arg("-o").arg(out).arg(source);
    let result = compiler(clang, "clang", "clang and lld");
    let _ = std::fs::remove_dir_all(include);
    result
}

fn rust(source: &Path, out: &Path) -> Result<(), Complaint> {
    let mut rustc = Command::new("rustc");
    rustc.args([
        "--edition",
        "2024",
        "--target",
        "wasm32-unknown-unknown",
        "--crate-type",
        "cdylib",
        "-C",
        "opt-level=3",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
        "-C",
        "link-arg=--export=lm_plugin",
        "-C",
        "link-arg=-zstack-size=32768",
    ]);
    rustc.arg("-o").arg(out).arg(source);
    compiler(rustc, "rustc", "Rust with its target wasm32-unknown-unknown")
}

fn compiler(mut command: Command, name: &str, needs: &str) -> Result<(), Complaint> {
    let output = command.output();
    let output = output
        .map_err(|error| Complaint(format!("{name}: {error}; `make devices` installs {needs}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    let hint = if said.contains("wasm-ld") || said.contains("can't find crate for `core`") {
        format!("\n`make devices` installs {needs}")
    } else {
        String::new()
    };
    Err(Complaint(format!("{name} failed:\n{}{hint}", said.trim_end())))
}
