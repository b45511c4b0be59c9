//! The pages under `docs/`, followed as a newcomer would: their files are written, their commands are run, and
//! the output that a page shows must appear in the real one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A fenced block of a page.
struct Block<'a> {
    /// The text after the fence: the language, and a file's name.
    info: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut parts = page.split("\n```");
    parts.next();
    let mut blocks = Vec::new();
    while let (Some(block), end) = (parts.next(), parts.next()) {
        assert!(end.is_some(), "a block is not closed");
        let (info, text) = block.split_once('\n').unwrap_or((block, ""));
        blocks.push(Block { info, text });
    }
    blocks
}

/// A command's output. Its exit status must be that of a trailing `# exit N`, else 0.
fn run(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_lastmeter")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let shell =
        Command::new("sh").args(["-c", command]).env("PATH", path).current_dir(folder).output();
    let output = shell.unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let wanted =
        command.split_once("# exit ").map_or(0, |(_, status)| status.trim().parse().unwrap());
    assert_eq!(output.status.code(), Some(wanted), "{command}\n{said}");
    said
}

fn follow(page: &str, folder: &Path) -> usize {
    let (mut said, mut commands) = (String::new(), 0);
    for block in blocks(page) {
        match block.info.split_once(' ').unwrap_or((block.info, "")) {
            ("sh", "") => {
                let lines = block.text.lines().filter(|line| !line.is_empty());
                said = lines.inspect(|_| commands += 1).map(|line| run(line, folder)).collect();
            }
            ("text", "") => {
                for line in block.text.lines().filter(|line| !line.is_empty()) {
                    assert!(said.contains(line.trim_end()), "`{line}` is not in:\n{said}");
                }
            }
            ("toml", name) if !name.is_empty() => {
                let path = folder.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, block.text).unwrap();
            }
            // Rust is run by `cargo test --doc`, Python by the package's tests.
            ("rust" | "python", "") => {}
            (language, name) => panic!("nothing runs this block of {language} `{name}`"),
        }
    }
    commands
}

fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_command_of_every_page_does_what_the_page_says() {
    let mut commands = 0;
    for path in pages() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let folder = format!("lastmeter-docs-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let page = fs::read_to_string(&path).unwrap();
        commands += follow(&page, &folder);
        fs::remove_dir_all(folder).unwrap();
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn every_link_of_every_page_has_a_target() {
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(file).exists(), "{}: {link}", path.display());
        }
    }
}
