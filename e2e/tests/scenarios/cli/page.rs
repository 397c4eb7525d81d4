//! Reads and runs the executable blocks of a Markdown page, and compares output with the page. A
//! ```` ```console ```` block has `$ command` lines (`> ` continues), an optional `? CODE`, and the
//! output. If the second word after the opening fence is a path, the block is the content of this
//! file.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::Cluster;
use e2e::host::command::Command;

/// Shell program that runs one command, and saves the variables and the working folder for the next
/// command.
const SHELL: &str = r#"exec 2>&1; set -a; . "$STATE"; eval "$TYPED"; code=$?; unset TYPED; { export -p; echo "cd '$PWD'"; } > "$STATE"; exit $code"#;

/// Step of a page.
#[derive(Debug, PartialEq)]
enum Step {
    /// File that a page shows.
    File { path: String, text: String },
    /// Command line at `line` of the page, with its expected exit code and output.
    Command {
        line: usize,
        typed: String,
        code: i32,
        answer: String,
    },
}

/// Runs the commands of one page in a separate folder, with these variables, and returns the number
/// of steps. Returns an error for the first command whose exit code or output differs from the
/// page.
pub(in crate::scenarios) async fn follow(
    cluster: &Cluster,
    variables: &[(&str, String)],
    path: &Path,
) -> Result<usize> {
    // Creates links to kubectl and the plugin in the first folder of the shell's PATH.
    cluster.plugin().await?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let steps = read(&fs_err::read_to_string(path)?);
    let folder = cluster.folder().join("data").join(&*name);
    let state = cluster.folder().join("data").join(format!("{name}.state"));
    fs_err::create_dir_all(&folder)?;
    fs_err::write(&state, format!("cd '{}'\n", folder.display()))?;
    for step in &steps {
        match step {
            Step::File { path, text, .. } => {
                let target = folder.join(path);
                fs_err::create_dir_all(target.parent().context("a file lies in a folder")?)?;
                fs_err::write(target, text)?;
            }
            Step::Command {
                line,
                typed,
                code,
                answer,
            } => {
                let mut shell = cluster.clean(Command::new("/bin/sh"));
                for (variable, value) in variables {
                    shell = shell.env(variable, value);
                }
                let shell = shell.env("STATE", &state).env("TYPED", typed);
                let output = shell.args(["-c", SHELL]).output().await?;
                let (is, wanted) = (output.stdout.trim_end(), answer.trim_end());
                ensure!(
                    output.code == Some(*code) && matches(wanted, is),
                    "{name}:{line}: `{typed}` has other output\n── expected, with exit code {code}\n{wanted}\n── actual, with exit code {:?}\n{is}",
                    output.code
                );
            }
        }
    }
    Ok(steps.len())
}

/// Returns all steps of a page in order.
fn read(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> = lines
            .by_ref()
            .take_while(|(_, line)| *line != "```")
            .collect();
        match info.split_once(' ') {
            _ if info == "console" => commands(&block, &mut steps),
            Some((_, path)) => steps.push(Step::File {
                path: path.to_owned(),
                text: block.iter().flat_map(|(_, line)| [line, "\n"]).collect(),
            }),
            None => {}
        }
    }
    steps
}

fn commands(block: &[(usize, &str)], steps: &mut Vec<Step>) {
    for (number, text) in block {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step::Command {
                line: number + 1,
                typed: command.to_owned(),
                code: 0,
                answer: String::new(),
            });
            continue;
        }
        let Some(Step::Command {
            typed,
            code,
            answer,
            ..
        }) = steps.last_mut()
        else {
            panic!("line {}: an answer before any command", number + 1);
        };
        if let (Some(more), true) = (text.strip_prefix("> "), answer.is_empty()) {
            typed.push('\n');
            typed.push_str(more);
        } else if let (Some(number), true) = (text.strip_prefix("? "), answer.is_empty()) {
            *code = number.parse().expect("an exit code");
        } else {
            answer.push_str(text);
            answer.push('\n');
        }
    }
}

/// Returns `true` if `is` matches `pattern`. In `pattern`, a line `...` matches any number of
/// lines, and `[..]` matches any text within a line.
fn matches(pattern: &str, is: &str) -> bool {
    let pattern: Vec<_> = pattern.lines().collect();
    let is: Vec<_> = is.lines().collect();
    lines_match(&pattern, &is)
}

fn lines_match(pattern: &[&str], is: &[&str]) -> bool {
    match pattern.split_first() {
        None => is.is_empty(),
        Some((&"...", rest)) => (0..=is.len()).any(|skip| lines_match(rest, &is[skip..])),
        Some((first, rest)) => is
            .split_first()
            .is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more)),
    }
}

fn line_matches(pattern: &str, is: &str) -> bool {
    let Some((before, rest)) = pattern.split_once("[..]") else {
        return pattern.trim_end() == is.trim_end();
    };
    is.strip_prefix(before).is_some_and(|is| {
        is.char_indices()
            .map(|(at, _)| at)
            .chain([is.len()])
            .any(|at| line_matches(rest, &is[at..]))
    })
}

#[test]
fn reads_page_blocks_and_compares_output() {
    let page = "Text\n```yaml a/b.yaml\nx: 1\n```\n```sh\nrm -rf /\n```\n```console\n$ cat <<E\n> one\n> E\none\n$ false\n? 1\n```\n";
    let command = |line, typed: &str, code, answer: &str| Step::Command {
        line,
        typed: typed.to_owned(),
        code,
        answer: answer.to_owned(),
    };
    assert_eq!(
        read(page),
        [
            Step::File {
                path: "a/b.yaml".to_owned(),
                text: "x: 1\n".to_owned()
            },
            command(9, "cat <<E\none\nE", 0, "one\n"),
            command(13, "false", 1, ""),
        ]
    );
    assert!(matches("a [..] c [..]\n...\nend", "a b c d\nend"));
    assert!(matches("...\nend\n...", "x\ny\nend\nz"));
    assert!(matches("...", ""));
    assert!(!matches("a [..] c", "a b d"));
    assert!(!matches("a\nb", "a\nb\nc"));
    assert!(!matches("", "a"));
}
