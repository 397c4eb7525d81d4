//! API versions and kinds of the API server that are passed to helm. Their number and length are
//! limited, because users with permission for CustomResourceDefinitions determine both.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{Finding, codes},
    reference::Digest,
    version::apis,
};

/// Maximum number of API versions and kinds that are passed to helm.
const MAX_APIS: usize = 1_024;
/// Maximum total length of the API versions and kinds that are passed to helm, in bytes. The kernel
/// limits all arguments of a program together to 2 MiB.
const MAX_APIS_BYTES: usize = 256 << 10;
/// Minimum time between two renderings of a chart that differ only in the served API versions.
/// Otherwise a user who repeatedly creates and deletes a CustomResourceDefinition could start a
/// rendering in each reconcile.
const RENDER_INTERVAL: Duration = Duration::from_secs(300);

/// API versions and kinds that an API server serves, with the groups that a chart names.
#[derive(Debug, Clone, Default)]
pub struct ServedApis {
    /// API versions (`apps/v1`) and kinds (`apps/v1/Deployment`), sorted, without duplicates.
    list: Vec<String>,
    /// Groups that are not built-in. The value is `true` if a file of the chart names the group.
    custom_groups: BTreeMap<String, bool>,
    /// Groups whose kinds could not be listed. The list contains only their API versions.
    unlisted_groups: BTreeSet<String>,
}

/// API versions and kinds within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedApis<'a> {
    /// API versions and kinds that are passed to helm.
    pub passed: Vec<&'a str>,
    /// Number of API versions and kinds that are not passed to helm.
    pub omitted: usize,
}

/// Order in which API versions and kinds are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ApiPriority {
    /// The group is built-in.
    BuiltIn,
    /// The chart names the group.
    Named,
    /// The group is not built-in, and the chart does not name it.
    Other,
}

impl ServedApis {
    /// Creates a [`ServedApis`] from `list`, the API versions (`apps/v1`) and kinds
    /// (`apps/v1/Deployment`) that the API server serves. The kinds of `unlisted_groups` could not be
    /// listed. No group counts as named by the chart yet.
    pub fn new(mut list: Vec<String>, unlisted_groups: BTreeSet<String>) -> Self {
        list.sort();
        list.dedup();
        let groups = list.iter().map(|api| group_of(api));
        let custom_groups = groups
            .filter(|group| apis::is_custom(group))
            .map(|group| (group.to_owned(), false))
            .collect();
        Self {
            list,
            custom_groups,
            unlisted_groups,
        }
    }

    /// Returns a group that the chart names and whose kinds could not be listed. Without these
    /// kinds, the chart could render fewer objects, and an upgrade would delete the others.
    pub fn unlisted_named_group(&self) -> Option<&str> {
        let mut groups = self.unlisted_groups.iter();
        let is_named = |group: &str| self.custom_groups.get(group).copied().unwrap_or_default();
        groups.find(|group| is_named(group)).map(String::as_str)
    }

    /// Marks the groups whose names are in `text`, a file of the chart or its values. The time is
    /// linear in the length of `text`.
    pub fn search(&mut self, text: &[u8]) {
        if self.custom_groups.is_empty() {
            return;
        }
        let is_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        for word in text.split(|byte| !is_name(*byte)) {
            // The name of a group that is not built-in contains a dot.
            let Some(name) = std::str::from_utf8(word)
                .ok()
                .filter(|word| word.contains('.'))
            else {
                continue;
            };
            let name = name.trim_matches(['.', '-']);
            if let Some(is_named) = self.custom_groups.get_mut(name) {
                *is_named = true;
            } else if let Some(group) = api_service_group(name) {
                self.unlisted_groups.remove(group);
            }
        }
    }

    /// Selects the API versions and kinds that are passed to helm: first those of built-in groups,
    /// then those of groups that the chart names, and then all others, each in sorted order.
    pub fn selected(&self) -> SelectedApis<'_> {
        let mut ordered: Vec<&str> = self.list.iter().map(String::as_str).collect();
        ordered.sort_by_key(|api| self.priority(api));
        let (mut passed, mut omitted, mut bytes) = (Vec::new(), 0, 0);
        for api in ordered {
            if passed.len() == MAX_APIS || bytes + api.len() > MAX_APIS_BYTES {
                omitted += 1;
            } else {
                bytes += api.len();
                passed.push(api);
            }
        }
        SelectedApis { passed, omitted }
    }

    fn priority(&self, api: &str) -> ApiPriority {
        match self.custom_groups.get(group_of(api)) {
            None => ApiPriority::BuiltIn,
            Some(true) => ApiPriority::Named,
            Some(false) => ApiPriority::Other,
        }
    }

    fn digest(&self) -> Digest {
        Digest::of(self.list.join("\n").as_bytes())
    }
}

/// Returns the group in the name of an APIService, such as `v1beta1.metrics.k8s.io`. A chart with
/// such a name can contain the server of the API, so its rendering cannot wait for this server.
fn api_service_group(name: &str) -> Option<&str> {
    let (version, group) = name.split_once('.')?;
    let number = version.strip_prefix('v')?;
    number
        .starts_with(|first: char| first.is_ascii_digit())
        .then_some(group)
}

/// Returns the group of an API version or kind. For a kind of the core group, returns the version,
/// which is not the name of a group.
fn group_of(api: &str) -> &str {
    api.split_once('/').map_or("", |(group, _)| group)
}

/// Served API versions and kinds for which a chart was rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderedApis {
    /// Digest of all served API versions and kinds.
    digest: Digest,
    /// Time at which the rendering started.
    started: SystemTime,
    /// Number of API versions and kinds that were not passed to helm.
    omitted: usize,
}

impl RenderedApis {
    /// Returns the facts about a rendering for `served` that starts now.
    pub fn new(served: &ServedApis, now: SystemTime) -> Self {
        Self {
            digest: served.digest(),
            started: now,
            omitted: served.selected().omitted,
        }
    }

    /// Returns `true` if the chart can be rendered again when the served API versions have changed.
    /// After a change of the clock, the result is `true`.
    pub fn can_render_again(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.started).ok();
        age.is_none_or(|age| age >= RENDER_INTERVAL)
    }

    /// Returns `true` if the chart was rendered for exactly the API versions and kinds in `served`.
    pub fn is_for(&self, served: &ServedApis) -> bool {
        self.digest == served.digest()
    }

    /// Returns a warning if served API versions or kinds were not passed to helm.
    pub fn warning(&self) -> Option<Finding> {
        if self.omitted == 0 {
            return None;
        }
        let message = format!(
            "helm rendered the chart without {} of the API versions and kinds that the API server \
            serves, because at most {MAX_APIS} of them with {} KiB are passed to helm",
            self.omitted,
            MAX_APIS_BYTES >> 10
        );
        let warning = Finding::warning(codes::format::CHART_APIS_OMITTED, message);
        Some(warning.hint(
            "groups whose names are in the chart or in its values are passed first; list kinds that the chart needs in requires.apis of bundle.yaml",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns API versions of built-in groups, of the group `zz.example.com`, and of as many other
    /// groups as `custom` states.
    fn served(custom: usize) -> ServedApis {
        let fixed = [
            "v1/Pod",
            "v1",
            "apps/v1",
            "zz.example.com/v1",
            "zz.example.com/v1/Shop",
            "v1",
        ];
        let custom = (0..custom).map(|number| format!("g{number:04}.example.com/v1"));
        let list = custom.chain(fixed.map(str::to_owned)).collect();
        ServedApis::new(list, BTreeSet::new())
    }

    #[test]
    fn built_in_and_named_groups_precede_other_groups_within_the_limit_of_values() {
        let few = served(2);
        let selected = few.selected();
        assert_eq!((selected.passed.len(), selected.omitted), (7, 0));
        let mut many = served(MAX_APIS);
        let selected = many.selected();
        assert_eq!((selected.passed.len(), selected.omitted), (MAX_APIS, 5));
        assert_eq!(selected.passed[..3], ["apps/v1", "v1", "v1/Pod"]);
        assert_eq!(selected.passed[3], "g0000.example.com/v1");
        many.search(b"{{- if .Capabilities.APIVersions.Has \"zz.example.com/v1\" }}");
        let selected = many.selected();
        assert_eq!((selected.passed.len(), selected.omitted), (MAX_APIS, 5));
        let named = ["zz.example.com/v1", "zz.example.com/v1/Shop"];
        assert_eq!(selected.passed[3..5], named);
        assert_eq!(selected.passed[5], "g0000.example.com/v1");
    }

    #[test]
    fn selected_values_have_a_limited_length() {
        let long = "a".repeat(1_000);
        let list = (0..300).map(|number| format!("{number:03}.{long}/v1"));
        let long = ServedApis::new(list.collect(), BTreeSet::new());
        let selected = long.selected();
        let bytes: usize = selected.passed.iter().map(|api| api.len()).sum();
        assert!((MAX_APIS_BYTES - 1_010..=MAX_APIS_BYTES).contains(&bytes));
        assert_eq!(selected.passed.len() + selected.omitted, 300);
    }

    #[test]
    fn only_complete_names_of_groups_are_found() {
        for (text, is_found) in [
            ("zz.example.com", true),
            ("a: zz.example.com/v1beta1\n", true),
            ("# see zz.example.com.", true),
            ("printf \"%s/v1\" \"zz.example.com\"", true),
            ("a.zz.example.com", false),
            ("zz.example.com.org", false),
            ("xzz.example.com", false),
            ("zz example.com", false),
        ] {
            let mut apis = served(MAX_APIS);
            apis.search(text.as_bytes());
            let found = apis.selected().passed.contains(&"zz.example.com/v1");
            assert_eq!(found, is_found, "{text}");
        }
    }

    #[test]
    fn unlisted_groups_matter_only_if_the_chart_names_them() {
        let list = ["v1", "one.example.com/v1", "two.example.com/v1"].map(str::to_owned);
        let unlisted = ["one.example.com", "two.example.com"].map(str::to_owned);
        let mut served = ServedApis::new(list.into(), unlisted.into());
        assert_eq!(served.unlisted_named_group(), None);
        served.search(b"apiVersion: two.example.com/v1");
        assert_eq!(served.unlisted_named_group(), Some("two.example.com"));
        served.search(b"kind: APIService\nmetadata: {name: v1beta1.two.example.com}");
        assert_eq!(served.unlisted_named_group(), None);
    }

    #[test]
    fn changed_api_versions_start_at_most_one_rendering_in_an_interval() {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let rendered = RenderedApis::new(&served(1), started);
        assert!(rendered.is_for(&served(1)) && !rendered.is_for(&served(2)));
        assert!(!rendered.can_render_again(started));
        let before = RENDER_INTERVAL.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(!rendered.can_render_again(started + before));
        assert!(rendered.can_render_again(started + RENDER_INTERVAL));
        assert!(rendered.can_render_again(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn omitted_values_are_reported() {
        let rendered = |custom| RenderedApis::new(&served(custom), SystemTime::UNIX_EPOCH);
        assert_eq!(rendered(1).warning(), None);
        let warning = rendered(MAX_APIS).warning().unwrap();
        let expected = "helm rendered the chart without 5 of the API versions and kinds that the API server serves, because at most 1024 of them with 256 KiB are passed to helm";
        assert_eq!(warning.message, expected);
    }
}
