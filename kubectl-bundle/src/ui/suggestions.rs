//! Commands and flags of other tools, with the corresponding commands and flags of this program.

use bundle_core::diagnostic::{Finding, codes};
use clap::Command;

/// Commands of kubectl, Helm and other tools, each with the corresponding verb of this program.
const WORDS: [(&str, &str); 15] = [
    ("add", "kubectl bundle deploy NAME REF"),
    ("apply", "kubectl bundle deploy NAME REF"),
    ("update", "kubectl bundle deploy NAME REF"),
    ("undo", "kubectl bundle rollback NAME"),
    ("suspend", "kubectl bundle pause NAME"),
    ("remove", "kubectl bundle delete NAME"),
    ("rm", "kubectl bundle delete NAME"),
    ("list", "kubectl bundle get"),
    ("ls", "kubectl bundle get"),
    ("describe", "kubectl bundle status NAME"),
    ("template", "kubectl bundle render REF|DIR"),
    ("show", "kubectl bundle inspect REF|DIR"),
    ("lint", "kubectl bundle build DIR --dry-run"),
    ("validate", "kubectl bundle build DIR --dry-run"),
    ("package", "kubectl bundle build DIR"),
];

/// Returns the finding for an unknown verb that another tool has.
pub(crate) fn verb(words: &[String]) -> Option<Finding> {
    let word = words.iter().find(|word| !word.starts_with('-'))?;
    let (_, command) = WORDS.iter().find(|(known, _)| known == word)?;
    Some(
        Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{word}` is not a verb of kubectl bundle"),
        )
        .hint(format!("use {command}")),
    )
}

/// Returns the flags in a hint, with their dashes. Flags within a quoted command are not included.
fn flags(hint: &str) -> Vec<&str> {
    if ["kubectl ", "openssl ", "cosign ", "helm "]
        .iter()
        .any(|program| hint.contains(program))
    {
        return Vec::new();
    }
    hint.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| {
            let name = word.strip_prefix("--").unwrap_or_default();
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
        .collect()
}

/// Flags of the current verb, and of all other verbs.
pub(crate) struct VerbFlags {
    root: Command,
    path: Vec<String>,
}

impl VerbFlags {
    /// Returns the flags of the verb on this command line.
    pub(crate) fn of(root: Command, words: &[String]) -> Self {
        let mut path = Vec::new();
        let mut verb = &root;
        for word in words {
            match verb.find_subcommand(word) {
                Some(next) => {
                    path.push(next.get_name().to_owned());
                    verb = next;
                }
                None if path.is_empty() && word.starts_with('-') => {}
                None => break,
            }
        }
        Self { root, path }
    }

    /// Returns `hint`. If the current verb lacks a flag in `hint`, the name of a verb that has the
    /// flag is added.
    pub(crate) fn complete(&self, hint: &str) -> String {
        let mut verb = Some(&self.root);
        for name in &self.path {
            verb = verb.and_then(|verb| verb.find_subcommand(name));
        }
        let foreign: Vec<String> = flags(hint)
            .into_iter()
            .filter(|flag| !has(verb.unwrap_or(&self.root), flag) && !has(&self.root, flag))
            .filter_map(|flag| {
                let owner = owner(&self.root, flag)?;
                Some(format!("{flag} is a flag of `kubectl bundle {owner}`"))
            })
            .collect();
        if foreign.is_empty() {
            hint.to_owned()
        } else {
            format!("{hint} ({})", foreign.join("; "))
        }
    }
}

/// Returns `true` if a verb has this flag, by name or alias.
fn has(verb: &Command, flag: &str) -> bool {
    let name = flag.trim_start_matches('-');
    name == "help"
        || verb.get_arguments().any(|argument| {
            argument.get_long() == Some(name)
                || argument
                    .get_all_aliases()
                    .is_some_and(|all| all.contains(&name))
        })
}

/// Returns the first verb that has this flag, such as `keys generate`.
fn owner(root: &Command, flag: &str) -> Option<String> {
    root.get_subcommands().find_map(|verb| {
        if has(verb, flag) {
            return Some(verb.get_name().to_owned());
        }
        owner(verb, flag).map(|below| format!("{} {below}", verb.get_name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn of(line: &str) -> VerbFlags {
        VerbFlags::of(crate::cli::command(), &words(line))
    }

    #[test]
    fn commands_of_other_tools_map_to_existing_verbs() {
        let root = crate::cli::command();
        for (word, command) in WORDS {
            assert!(root.find_subcommand(word).is_none(), "{word} is a verb");
            let verb = command.split(' ').nth(2).unwrap().trim_end_matches(',');
            assert!(root.find_subcommand(verb).is_some(), "{command}");
        }
        assert!(verb(&words("-q apply web")).is_some());
        assert!(verb(&words("get apply")).is_none());
    }

    #[test]
    fn hints_name_the_verb_of_a_flag_that_the_current_one_lacks() {
        let hint = "write the tag of a version, or allow it with --allow-mutable-tags";
        assert_eq!(of("build web").complete(hint), hint);
        assert_eq!(
            of("push web registry.example.com/web:1").complete(hint),
            format!("{hint} (--allow-mutable-tags is a flag of `kubectl bundle build`)")
        );
        let of_all = "say less with --quiet";
        assert_eq!(of("keys generate").complete(of_all), of_all);
        let spelled = "try kubectl bundle build --lock";
        assert_eq!(of("get").complete(spelled), spelled);
    }

    /// Returns the path and the text of every Rust source file.
    fn sources() -> Vec<(String, String)> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        let mut folders: Vec<_> = ["crates", "kubectl-bundle/src", "webhook/src"]
            .iter()
            .map(|folder| root.join(folder))
            .collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.push((path.display().to_string(), text));
                }
            }
        }
        found
    }

    #[test]
    fn every_flag_in_a_hint_exists() {
        let root = crate::cli::command();
        let mut hints = 0;
        for (path, text) in sources() {
            for part in text.split(".hint(").skip(1) {
                // The string literal of the hint can be an argument of `format!`.
                let part = part
                    .trim_start()
                    .trim_start_matches("format!(")
                    .trim_start();
                let Some(literal) = part.strip_prefix('"') else {
                    continue;
                };
                let end = literal
                    .find("\")")
                    .or_else(|| literal.find('"'))
                    .unwrap_or(0);
                for flag in flags(&literal[..end]) {
                    hints += 1;
                    let known = has(&root, flag) || owner(&root, flag).is_some();
                    assert!(known, "{path}: a hint names {flag}, which no verb has");
                }
            }
        }
        assert!(hints > 10, "only {hints} flags were found in hints");
    }

    #[test]
    fn every_command_in_a_text_exists_with_its_flags() {
        let root = crate::cli::command();
        let mut commands = 0;
        for (path, text) in sources() {
            for part in text.split("kubectl bundle ").skip(1) {
                // The command ends at one of these characters, or at the end of the sentence.
                let line = part
                    .split(['\n', '`', '"', '|', ';', ',', '(', ')'])
                    .next()
                    .and_then(|line| line.split(". ").next())
                    .unwrap_or_default();
                let mut verb = &root;
                let mut words = line.split(' ').peekable();
                while let Some(next) = words.peek().and_then(|word| verb.find_subcommand(word)) {
                    verb = next;
                    words.next();
                }
                if verb.get_name() == root.get_name() {
                    continue;
                }
                commands += 1;
                for word in words.filter(|word| word.starts_with("--")) {
                    let flag = word
                        .split(['=', '.', ')', ':', '[', ']', '\\'])
                        .next()
                        .unwrap_or(word);
                    let known = flag == "--" || has(verb, flag) || has(&root, flag);
                    assert!(known, "{path}: {} has no {flag}: {line}", verb.get_name());
                }
            }
        }
        assert!(commands > 50, "only {commands} commands were found");
    }
}
