//! Follows a page as a newcomer would: its files are written, its commands are run, and the output that it shows
//! must appear in the real one.

use std::fs;
use std::path::Path;
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
fn run(command: &str, programs: &Path, folder: &Path) -> String {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
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

/// Follows a page in this folder, with the programs in another; returns the number of commands.
pub(crate) fn follow(page: &str, programs: &Path, folder: &Path) -> usize {
    let (mut said, mut commands) = (String::new(), 0);
    for block in blocks(page) {
        match block.info.split_once(' ').unwrap_or((block.info, "")) {
            ("sh", "") => {
                let lines = block.text.lines().filter(|line| !line.is_empty());
                said = lines
                    .inspect(|_| commands += 1)
                    .map(|line| run(line, programs, folder))
                    .collect();
            }
            ("text", "") => {
                for line in block.text.lines().filter(|line| !line.is_empty()) {
                    assert!(said.contains(line.trim_end()), "`{line}` is not in:\n{said}");
                }
            }
            ("toml" | "c" | "lisp", name) if !name.is_empty() => {
                let path = folder.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, block.text).unwrap();
            }
            // Rust is run by `cargo test --doc`, Python by the package's tests, expressions by those of plugins.
            ("rust" | "python" | "lisp", "") => {}
            (language, name) => panic!("nothing runs this block of {language} `{name}`"),
        }
    }
    commands
}
