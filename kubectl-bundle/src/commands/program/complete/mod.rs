//! `__complete`: prints completion candidates in the format of cobra, which kubectl requires of
//! plugins.

mod arguments;

use std::time::Duration;

use bundle_api::{Bundle, BundleDeployment, ProvisionerClass};
use clap::{Arg, ArgAction, Command};
use kube::api::{Api, ListParams};

use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// cobra's directive ShellCompDirectiveNoFileComp.
const NO_FILES: u8 = 4;
/// cobra's directive ShellCompDirectiveDefault.
const DEFAULT: u8 = 0;
/// Timeout for names from the cluster. It is short, because completion blocks the shell.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of names.
const NAMES: u32 = 500;

/// Settings of `__complete`.
pub(crate) struct Complete {
    /// All verbs and their flags.
    pub(crate) root: Command,
    /// The words after `kubectl bundle`. The last word is incomplete.
    pub(crate) words: Vec<String>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

/// Candidates, or the source of the candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Candidates {
    /// Fixed candidates with their descriptions.
    These(Vec<(String, String)>),
    /// Names of BundleDeployments.
    Deployments,
    /// Names of Bundles.
    Bundles,
    /// Names of ProvisionerClasses.
    Classes,
    /// File names, completed by the shell.
    Files,
}

impl Complete {
    /// Prints the candidates that begin with the last word, and a directive.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let last = self.words.last().cloned().unwrap_or_default();
        let before = &self.words[..self.words.len().saturating_sub(1)];
        // For `--flag=VALUE`, the candidates contain the flag and the value.
        let (before, last, prefix) = match last.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => {
                let mut words = before.to_vec();
                words.push(flag.to_owned());
                (words, value.to_owned(), format!("{flag}="))
            }
            _ => (before.to_vec(), last.clone(), String::new()),
        };
        let wanted = candidates(&self.root, &before, &last, !prefix.is_empty());
        let directive = if wanted == Candidates::Files {
            DEFAULT
        } else {
            NO_FILES
        };
        for (value, help) in self.resolve(wanted).await {
            if value.starts_with(&last) {
                let line = format!("{prefix}{value}\t{help}");
                ui.data(line.trim_end())?;
            }
        }
        ui.data(format!(":{directive}"))
    }

    async fn resolve(&self, wanted: Candidates) -> Vec<(String, String)> {
        let named = |names: Vec<String>| {
            names
                .into_iter()
                .map(|name| (name, String::new()))
                .collect()
        };
        match wanted {
            Candidates::These(these) => these,
            Candidates::Files => Vec::new(),
            Candidates::Deployments => named(self.names::<BundleDeployment>().await),
            Candidates::Bundles => named(self.names::<Bundle>().await),
            Candidates::Classes => named(self.names::<ProvisionerClass>().await),
        }
    }

    /// Returns names from the cluster. Returns no names after a timeout.
    async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let asking = async {
            let cluster = Cluster::connect(&self.cluster).await.ok()?;
            let resource = kube::api::ApiResource::erase::<K>(&());
            let api: Api<kube::api::DynamicObject> =
                Api::all_with(cluster.client.clone(), &resource);
            let parameters = ListParams::default().limit(NAMES);
            let list = cluster.send(api.list_metadata(&parameters)).await.ok()?;
            Some(
                list.items
                    .into_iter()
                    .filter_map(|item| item.metadata.name)
                    .collect(),
            )
        };
        tokio::time::timeout(CLUSTER_TIMEOUT, asking)
            .await
            .ok()
            .flatten()
            .unwrap_or_default()
    }
}

/// Returns the candidates for the incomplete word `last`, which follows the words `before`.
/// `joined` is `true` if `last` is the value in `--flag=VALUE`.
fn candidates(root: &Command, before: &[String], last: &str, joined: bool) -> Candidates {
    let mut verb = root;
    let mut positionals = 0;
    let mut awaited: Option<&Arg> = None;
    for word in before {
        if awaited.take().is_some() {
            continue;
        }
        if let Some(flag) = flag(verb, root, word) {
            let takes = flag.get_action().takes_values() && !word.contains('=');
            // A flag with an optional value accepts the value only after `=`.
            awaited = (takes && !flag.is_require_equals_set()).then_some(flag);
        } else if let Some(next) = verb.find_subcommand(word) {
            verb = next;
        } else if !word.starts_with('-') {
            positionals += 1;
        }
    }
    let joined = before
        .last()
        .filter(|_| joined)
        .and_then(|word| flag(verb, root, word));
    if let Some(flag) = awaited.or(joined) {
        return values(flag);
    }
    if last.starts_with('-') {
        let flags = verb.get_arguments().chain(root.get_arguments());
        let mut found: Vec<_> = flags
            .filter(|flag| !flag.is_hide_set())
            .filter_map(|flag| Some((format!("--{}", flag.get_long()?), help(flag.get_help()))))
            .collect();
        found.push(("--help".to_owned(), "Print help".to_owned()));
        found.sort();
        found.dedup();
        return Candidates::These(found);
    }
    if verb.has_subcommands() {
        let verbs = verb.get_subcommands().filter(|verb| !verb.is_hide_set());
        return Candidates::These(
            verbs
                .map(|verb| (verb.get_name().to_owned(), help(verb.get_about())))
                .collect(),
        );
    }
    let repeated = |argument: &&Arg| matches!(argument.get_action(), ArgAction::Append);
    let argument = verb
        .get_positionals()
        .nth(positionals)
        .or_else(|| verb.get_positionals().last().filter(repeated))
        .filter(|argument| !argument.is_hide_set());
    match argument.map(|argument| argument.get_id().as_str()) {
        Some("name" | "names") => match verb.get_name() {
            "content" => Candidates::Bundles,
            // The user chooses the name of a new Bundle, so there are no candidates.
            "create" => Candidates::These(Vec::new()),
            _ => Candidates::Deployments,
        },
        _ => argument.map_or(Candidates::Files, values),
    }
}

/// Returns the flag with this name, from the verb or from the global flags.
fn flag<'a>(verb: &'a Command, root: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    verb.get_arguments()
        .chain(root.get_arguments())
        .find(|flag| {
            let long = name.strip_prefix("--").filter(|name| !name.is_empty());
            let short = name
                .strip_prefix('-')
                .filter(|name| name.chars().count() == 1);
            long.is_some_and(|long| {
                flag.get_long() == Some(long)
                    || flag
                        .get_all_aliases()
                        .is_some_and(|all| all.contains(&long))
            }) || short.is_some_and(|short| flag.get_short() == short.chars().next())
        })
}

fn values(argument: &Arg) -> Candidates {
    let possible = argument.get_possible_values();
    if argument.get_id() == "class" {
        Candidates::Classes
    } else if matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
        && !possible.is_empty()
    {
        Candidates::These(
            possible
                .iter()
                .filter(|value| !value.is_hide_set())
                .map(|value| (value.get_name().to_owned(), help(value.get_help())))
                .collect(),
        )
    } else {
        Candidates::Files
    }
}

/// Returns the first line of a help text.
fn help(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: &[&str], last: &str) -> Candidates {
        found_joined(before, last, false)
    }

    fn found_joined(before: &[&str], last: &str, joined: bool) -> Candidates {
        let before: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
        candidates(&crate::cli::command(), &before, last, joined)
    }

    fn names(candidates: Candidates) -> Vec<String> {
        match candidates {
            Candidates::These(these) => these.into_iter().map(|(name, _)| name).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn offers_verbs_flags_values_and_names() {
        assert!(names(found(&[], "")).contains(&"deploy".to_owned()));
        assert!(
            !names(found(&[], ""))
                .iter()
                .any(|name| name.starts_with('_'))
        );
        assert_eq!(
            names(found(&["keys"], "")),
            ["generate", "public", "import", "export"]
        );
        let flags = names(found(&["deploy", "web"], "--"));
        assert!(flags.contains(&"--service-account".to_owned()), "{flags:?}");
        assert!(flags.contains(&"--quiet".to_owned()), "{flags:?}");
        assert_eq!(
            names(found(&["deploy", "--collision"], "")),
            ["Prevent", "Adopt"]
        );
        assert_eq!(
            names(found(&["deploy", "--wait-for"], "")),
            ["Applied", "Ready"]
        );
        assert_eq!(
            names(found_joined(&["deploy", "--wait"], "", true)),
            ["false", "true", "healthy"]
        );
        assert_eq!(found(&["deploy", "--wait"], ""), Candidates::Deployments);
        assert_eq!(found(&["deploy", "--class"], ""), Candidates::Classes);
        for verb in [
            "adopt", "delete", "deploy", "diff", "get", "history", "pause", "plan", "resume",
            "rollback", "status", "tree", "unmanage", "upgrade",
        ] {
            assert_eq!(found(&[verb], ""), Candidates::Deployments, "{verb}");
        }
        for verb in ["get", "pause", "resume", "delete", "unmanage"] {
            assert_eq!(found(&[verb, "a", "b"], ""), Candidates::Deployments);
        }
        assert_eq!(found(&["run"], ""), Candidates::Deployments);
        assert_eq!(found(&["run", "web"], ""), Candidates::Files);
        assert_eq!(found(&["content"], ""), Candidates::Bundles);
        assert_eq!(found(&["create"], ""), Candidates::These(Vec::new()));
        assert_eq!(found(&["deploy", "web"], ""), Candidates::Files);
        assert_eq!(found(&["install"], ""), Candidates::Files);
        assert_eq!(
            found(&["delete", "web", "-n", "x"], ""),
            Candidates::Deployments
        );
        assert_eq!(found(&["build"], ""), Candidates::Files);
        assert!(names(found(&["completion"], "")).contains(&"kubectl".to_owned()));
    }
}
