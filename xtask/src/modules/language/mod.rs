//! Check of the language rules: doc comments, messages and pages must not contain banned words and
//! forms.

mod texts;
mod words;

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Maximum number of violations that the report lists for one file.
const LISTED: usize = 5;

/// Returns the violations in `sources` and `pages`.
pub(super) fn check(root: &Path, sources: &[PathBuf], pages: &[PathBuf]) -> Result<Vec<String>> {
    let own = Path::new("xtask/src/modules/language");
    let mut wrong = Vec::new();
    for file in sources.iter().chain(pages) {
        let path = file.strip_prefix(root).unwrap_or(file);
        if path.starts_with(own) {
            continue;
        }
        let found = violations(path, &fs_err::read_to_string(file)?)?;
        let listed = found.iter().take(LISTED);
        wrong.extend(listed.map(|violation| format!("{}: {violation}", path.display())));
    }
    Ok(wrong)
}

/// Returns the violations in the file at `path`, a Rust source or a page in Markdown.
fn violations(path: &Path, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if path.extension().is_some_and(|extension| extension == "md") {
        for paragraph in paragraphs(text) {
            report(&paragraph, "the page", &mut found);
        }
        return Ok(found);
    }
    let texts = texts::read(path, text)?;
    for doc in &texts.docs {
        report(doc, "a doc comment", &mut found);
        if let Some(word) = words::question(doc) {
            found.push(format!(
                "a doc comment begins with `{word}`: {}",
                beginning(doc)
            ));
        }
    }
    for message in &texts.messages {
        report(message, "a message", &mut found);
    }
    Ok(found)
}

fn report(text: &str, place: &str, found: &mut Vec<String>) {
    for phrase in words::banned(text) {
        found.push(format!(
            "{place} contains `{phrase}`, which the language rules ban: {}",
            beginning(text)
        ));
    }
}

/// Returns the first characters of a text in one line.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").chars().take(SHOWN).collect()
}

/// Returns the paragraphs of a page without its code blocks.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if line.trim().is_empty() {
            paragraphs.push(String::new());
        } else if !is_code && let Some(last) = paragraphs.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_banned_words_in_doc_comments_and_messages() {
        let source =
            "/// Whether our file\n/// is kept.\nfn f() { say(\"the registry refuses it\"); }";
        assert_eq!(
            violations(Path::new("src/a.rs"), source).unwrap(),
            [
                "a doc comment contains `our`, which the language rules ban: Whether our file is kept.",
                "a doc comment begins with `whether`: Whether our file is kept.",
                "a message contains `refuses`, which the language rules ban: the registry refuses it",
            ]
        );
    }

    #[test]
    fn reports_banned_words_of_pages_outside_of_code() {
        let page =
            "# Page\n\nThe pod `may not` read it.\n\n```sh\nnobody\n```\n\nSomebody\nreads it.\n";
        assert_eq!(
            violations(Path::new("docs/a.md"), page).unwrap(),
            ["the page contains `somebody`, which the language rules ban: Somebody reads it."]
        );
    }
}
