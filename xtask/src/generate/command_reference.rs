//! `docs/reference/commands.md`: the help text of each verb, from the plugin itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Groups of flags that many verbs have. The page lists each group once.
const SHARED: [&str; 3] = ["Cluster options", "Registry options", "Common options"];

/// Returns the page for the program at `plugin`.
pub(super) fn page(plugin: &Path) -> Result<String> {
    let mut text = String::from(
        "<!-- Written by `cargo xtask gen` from the help texts of kubectl-bundle. -->\n\
         # Commands\n\n\
         This page has the help text of each verb. `kubectl bundle VERB --help` prints the same text. [The command line](cli.md) has the rules for\n\
         output, exit codes and settings.\n",
    );
    let mut shared = BTreeMap::new();
    let mut waiting = names(&help(plugin, &[])?);
    waiting.reverse();
    while let Some(verb) = waiting.pop() {
        let help = HelpText::parse(&help(plugin, &verb.split(' ').collect::<Vec<_>>())?);
        let nested = help.section("Commands").map(|body| listed(body));
        let nested = nested.unwrap_or_default().into_iter().rev();
        waiting.extend(nested.map(|name| format!("{verb} {name}")));
        text.push_str(&help.markdown(&verb, &mut shared));
    }
    for (name, body) in shared {
        let _ = write!(text, "\n## {name}\n\n```text\n{body}\n```\n");
    }
    Ok(text)
}

/// Returns the help text of a verb. The width of the text does not depend on the terminal.
fn help(plugin: &Path, verb: &[&str]) -> Result<String> {
    let output = Command::new(plugin)
        .args(verb)
        .arg("--help")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", plugin.display()))?;
    if !output.status.success() {
        bail!("`{} --help` ended with {}", verb.join(" "), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the verbs in the top-level help text.
fn names(help: &str) -> Vec<String> {
    let help = HelpText::parse(help);
    help.section("Commands")
        .map(|body| listed(body))
        .unwrap_or_default()
}

/// Returns the names in a list of verbs, except `help`.
fn listed(body: &str) -> Vec<String> {
    let lines = body
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Help text of a verb, by section.
struct HelpText {
    /// Text before the usage line.
    purpose: String,
    /// Usage line.
    usage: String,
    /// Heading and content of each section.
    sections: Vec<(String, String)>,
}

impl HelpText {
    fn parse(text: &str) -> Self {
        let (purpose, rest) = text.split_once("Usage: ").unwrap_or((text, ""));
        let (usage, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in rest.lines() {
            match line.strip_suffix(':').filter(|head| !head.starts_with(' ')) {
                Some(head) => sections.push((head.to_owned(), String::new())),
                None => {
                    if let Some((_, body)) = sections.last_mut() {
                        body.push_str(line.trim_end());
                        body.push('\n');
                    }
                }
            }
        }
        for (_, body) in &mut sections {
            *body = body.trim_end().trim_start_matches('\n').to_owned();
        }
        Self {
            purpose: purpose.trim().to_owned(),
            usage: usage.to_owned(),
            sections,
        }
    }

    fn section(&self, heading: &str) -> Option<&String> {
        let mut sections = self.sections.iter();
        sections
            .find(|(head, _)| head == heading)
            .map(|(_, body)| body)
    }

    /// Returns the section of the page for this verb. Adds new shared groups to `shared`.
    fn markdown(&self, verb: &str, shared: &mut BTreeMap<String, String>) -> String {
        let purpose = self.purpose.replace('<', "&lt;");
        let mut text = format!(
            "\n## {verb}\n\n{purpose}\n\n```text\nUsage: {}\n",
            self.usage
        );
        let mut links = Vec::new();
        let mut examples = None;
        for (head, body) in &self.sections {
            if head == "Examples" {
                examples = Some(body);
                continue;
            }
            if SHARED.contains(&head.as_str()) {
                let known = shared.entry(head.clone()).or_insert_with(|| body.clone());
                if known == body {
                    let anchor = head.to_lowercase().replace(' ', "-");
                    links.push(format!("[{head}](#{anchor})"));
                    continue;
                }
            }
            let _ = write!(text, "\n{head}:\n{body}\n");
        }
        text.push_str("```\n");
        if !links.is_empty() {
            let _ = write!(text, "\nAlso: {}.\n", links.join(", "));
        }
        if let Some(examples) = examples {
            let unindented: Vec<&str> = examples
                .lines()
                .map(|line| line.strip_prefix("  ").unwrap_or(line))
                .collect();
            let block = unindented.join("\n");
            let _ = write!(text, "\nExamples:\n\n```sh\n{block}\n```\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Push <it>\n\nMore.\n\nUsage: kubectl bundle push <REF>\n\nArguments:\n  <REF>\n          Target\n\n\
        Common options:\n  -q, --quiet\n          Print only errors\n\nExamples:\n  # One\n  kubectl bundle push web\n";

    #[test]
    fn shared_groups_are_linked_and_examples_come_last() {
        let mut shared = BTreeMap::new();
        let page = HelpText::parse(HELP).markdown("push", &mut shared);
        assert_eq!(
            page,
            "\n## push\n\nPush &lt;it>\n\nMore.\n\n```text\nUsage: kubectl bundle push <REF>\n\nArguments:\n  <REF>\n          Target\n```\n\
             \nAlso: [Common options](#common-options).\n\nExamples:\n\n```sh\n# One\nkubectl bundle push web\n```\n"
        );
        assert_eq!(
            shared["Common options"],
            "  -q, --quiet\n          Print only errors"
        );
        shared.insert("Common options".to_owned(), "other".to_owned());
        let page = HelpText::parse(HELP).markdown("push", &mut shared);
        assert!(page.contains("\nCommon options:\n  -q"), "{page}");
    }

    #[test]
    fn reads_verbs_of_a_list() {
        let help = "About\n\nUsage: x <COMMAND>\n\nCommands:\n  init  Write\n        more\n  help  Print\n";
        assert_eq!(names(help), ["init"]);
    }
}
