//! Parts of a BundleDeployment's spec, each with its own requester, and the changes of parts by a
//! write. Bundles and approvals have the same parts, but all parts have the same requester.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    canonical,
    deployment::CheckedDeploymentSpec,
    requester::Requester,
    terms::{same_settings, settings},
};

/// Requesters of the parts of a spec. A part keeps its requester until it changes, even if another
/// user changes other parts. Parts with the same requester share one copy of its identity, because
/// an identity can have thousands of groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PartRequestersText", into = "PartRequestersText")]
pub struct PartRequesters {
    /// Requester of `provisionerClassName`.
    pub class: Arc<Requester>,
    /// Requester of `template`, `targetNamespace` and `createNamespace`. The last two fields
    /// determine the target of the content.
    pub template: Arc<Requester>,
    /// Requester of `config`.
    pub config: Arc<Requester>,
    /// Requester of `serviceAccount`.
    pub service_account: Arc<Requester>,
    /// Requester of `collision`, `crdUpgrades`, `drift.ignore`, `deletion` and `rollout.replace`.
    /// The content requires no permissions of this requester. A user cannot approve their own
    /// settings.
    pub settings: Arc<Requester>,
}

impl PartRequesters {
    /// Sets one requester for all parts.
    pub fn all(requester: &Requester) -> Self {
        let requester = Arc::new(requester.clone());
        Self {
            class: Arc::clone(&requester),
            template: Arc::clone(&requester),
            config: Arc::clone(&requester),
            service_account: Arc::clone(&requester),
            settings: requester,
        }
    }

    /// Returns the distinct requesters of all parts that an approval covers: content and settings.
    pub fn distinct_requesters(&self) -> Vec<&Requester> {
        distinct([
            &self.template,
            &self.config,
            &self.service_account,
            &self.class,
            &self.settings,
        ])
    }

    /// Returns the distinct requesters whose permissions the content requires: of template, config,
    /// ServiceAccount and class, in that order.
    pub fn content(&self) -> Vec<&Requester> {
        distinct([
            &self.template,
            &self.config,
            &self.service_account,
            &self.class,
        ])
    }

    /// Returns the distinct requesters of template and config, in that order.
    pub fn template_and_config(&self) -> Vec<&Requester> {
        distinct([&self.template, &self.config])
    }

    /// Returns the requesters in `former` that [`Self::content`] does not contain. `former`
    /// contains the requesters of content that was installed before.
    pub fn departed<'r>(&self, former: &'r [Requester]) -> Vec<&'r Requester> {
        let present = self.content();
        let is_present = |one: &Requester| present.iter().any(|other| other.is_same_user(one));
        former.iter().filter(|one| !is_present(one)).collect()
    }

    /// Returns the requesters after `writer` has changed the parts in `changed`.
    #[must_use]
    pub fn changed_by(&self, writer: &Requester, changed: ChangedParts) -> Self {
        let writer = Arc::new(writer.clone());
        let of = |changed: bool, before: &Arc<Requester>| {
            Arc::clone(if changed { &writer } else { before })
        };
        Self {
            class: of(changed.class, &self.class),
            template: of(changed.template, &self.template),
            config: of(changed.config, &self.config),
            service_account: of(changed.service_account, &self.service_account),
            settings: of(changed.settings, &self.settings),
        }
    }
}

fn distinct<const N: usize>(requesters: [&Requester; N]) -> Vec<&Requester> {
    let mut distinct: Vec<&Requester> = Vec::new();
    for requester in requesters {
        if !distinct.contains(&requester) {
            distinct.push(requester);
        }
    }
    distinct
}

/// Parts that a write changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part changes independently of the others"
)]
pub struct ChangedParts {
    /// True if the write changes `provisionerClassName`.
    pub class: bool,
    /// True if the write changes `template`, `targetNamespace` or `createNamespace`.
    pub template: bool,
    /// True if the write changes `config`.
    pub config: bool,
    /// True if the write changes `serviceAccount`.
    pub service_account: bool,
    /// True if the write changes `collision`, `crdUpgrades`, `drift.ignore`, `deletion` or
    /// `rollout.replace`.
    pub settings: bool,
}

impl ChangedParts {
    /// Compares the specs of a BundleDeployment. A part is unchanged if both specs have the same
    /// meaning and parse to equal values.
    pub fn between(old: &Value, new: &Value) -> Self {
        let read = (
            CheckedDeploymentSpec::parse(old).ok(),
            CheckedDeploymentSpec::parse(new).ok(),
        );
        let changed =
            |member: &str, same: fn(&CheckedDeploymentSpec, &CheckedDeploymentSpec) -> bool| {
                if old[member] == new[member] {
                    return false;
                }
                let read_the_same = matches!(&read, (Some(old), Some(new)) if same(old, new));
                !(read_the_same && canonical::same_member(member, &old[member], &new[member]))
            };
        Self {
            class: changed("provisionerClassName", |old, new| old.class == new.class),
            template: changed("template", |old, new| {
                // Labels and annotations need no parsing, so the comparison of the written values
                // covers them.
                old.template.bundle == new.template.bundle
            }) || changed("targetNamespace", |old, new| {
                old.target_namespace == new.target_namespace
            }) || changed("createNamespace", |old, new| {
                old.create_namespace == new.create_namespace
            }),
            config: changed("config", |_, _| true),
            service_account: changed("serviceAccount", |old, new| {
                old.service_account == new.service_account
            }),
            settings: {
                let (before, after) = (settings(old), settings(new));
                let read_the_same =
                    matches!(&read, (Some(old), Some(new)) if same_settings(old, new));
                let means_the_same = || {
                    let pairs = before.iter().zip(&after);
                    let mut same =
                        pairs.map(|((name, old), (_, new))| canonical::same_member(name, old, new));
                    same.all(|same| same)
                };
                before != after && !(read_the_same && means_the_same())
            },
        }
    }

    /// Returns `true` if a part that determines the content changes. Changes of settings are
    /// ignored.
    pub fn any_of_content(self) -> bool {
        self.class || self.template || self.config || self.service_account
    }
}

/// Serialized form of [`PartRequesters`]: the list of requesters, and the index of a requester for
/// each part.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartRequestersText {
    requesters: Vec<Requester>,
    class: usize,
    template: usize,
    config: usize,
    service_account: usize,
    /// Index of the requester of the settings. Stamps and seals of earlier versions do not have
    /// this field. For such stamps and seals, the requester of the template is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<usize>,
}

impl From<PartRequesters> for PartRequestersText {
    fn from(parts: PartRequesters) -> Self {
        let requesters: Vec<Requester> = parts.distinct_requesters().into_iter().cloned().collect();
        let index = |requester: &Arc<Requester>| {
            let found = requesters.iter().position(|known| *known == **requester);
            found.unwrap_or(usize::MAX)
        };
        Self {
            class: index(&parts.class),
            template: index(&parts.template),
            config: index(&parts.config),
            service_account: index(&parts.service_account),
            settings: Some(index(&parts.settings)),
            requesters,
        }
    }
}

impl TryFrom<PartRequestersText> for PartRequesters {
    type Error = &'static str;

    fn try_from(text: PartRequestersText) -> Result<Self, Self::Error> {
        let requesters: Vec<Arc<Requester>> = text.requesters.into_iter().map(Arc::new).collect();
        let at = |index: usize| {
            let found = requesters.get(index).cloned();
            found.ok_or("a part names a requester that is not in the list of requesters")
        };
        Ok(Self {
            class: at(text.class)?,
            template: at(text.template)?,
            config: at(text.config)?,
            service_account: at(text.service_account)?,
            settings: at(text.settings.unwrap_or(text.template))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn person(user: &str) -> Requester {
        Requester {
            user: user.into(),
            ..Requester::default()
        }
    }

    fn spec() -> Value {
        json!({
            "provisionerClassName": "plain",
            "template": {"spec": {"provisionerClassName": "plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}}},
        })
    }

    #[test]
    fn unchanged_parts_keep_their_requesters() {
        let tenant = PartRequesters::all(&person("ana"));
        let changed = ChangedParts {
            config: true,
            ..ChangedParts::default()
        };
        let now = tenant.changed_by(&person("ben"), changed);
        assert_eq!(*now.template, person("ana"));
        assert_eq!(*now.config, person("ben"));
        let users: Vec<_> = now.content().iter().map(|one| one.user.as_str()).collect();
        assert_eq!(users, ["ana", "ben"]);
        let text = serde_json::to_value(&now).unwrap();
        assert_eq!(text["requesters"].as_array().unwrap().len(), 2);
        assert_eq!(
            serde_json::from_value::<PartRequesters>(text.clone()).unwrap(),
            now
        );
        let mut bad = text;
        bad["class"] = 7.into();
        serde_json::from_value::<PartRequesters>(bad).unwrap_err();
    }

    #[test]
    fn parts_with_the_same_requester_share_one_copy() {
        let changed = ChangedParts {
            config: true,
            settings: true,
            ..ChangedParts::default()
        };
        let written = PartRequesters::all(&person("ana")).changed_by(&person("ben"), changed);
        let text = serde_json::to_value(&written).unwrap();
        let read: PartRequesters = serde_json::from_value(text).unwrap();
        for parts in [written, read] {
            assert!(Arc::ptr_eq(&parts.class, &parts.template));
            assert!(Arc::ptr_eq(&parts.class, &parts.service_account));
            assert!(Arc::ptr_eq(&parts.config, &parts.settings));
        }
    }

    #[test]
    fn former_requester_without_a_part_of_the_content_has_departed() {
        let with = |uid: &str, groups: &[&str]| Requester {
            uid: uid.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..person("ana")
        };
        let changed = |template: bool, others: bool| ChangedParts {
            class: others,
            template,
            config: others,
            service_account: others,
            settings: false,
        };
        let ana = PartRequesters::all(&with("1", &["dev"]));
        let parts = |changed| ana.changed_by(&person("ben"), changed);
        // Columns: requesters of the spec, former requester, `true` if `departed` returns the
        // former requester.
        for (parts, former, expected) in [
            (parts(changed(false, false)), with("1", &["dev"]), false),
            (parts(changed(false, false)), with("1", &[]), false),
            (parts(changed(false, false)), with("2", &["dev"]), true),
            (parts(changed(false, false)), person("ben"), true),
            (parts(changed(true, false)), with("1", &["dev"]), false),
            (parts(changed(false, true)), with("1", &["dev"]), false),
            // Only the settings keep their requester.
            (parts(changed(true, true)), with("1", &["dev"]), true),
        ] {
            let former = [former];
            let departed = parts.departed(&former);
            assert_eq!(!departed.is_empty(), expected, "{parts:?} {former:?}");
        }
        let parts = parts(changed(true, false));
        assert_eq!(
            parts.template_and_config(),
            [&person("ben"), &with("1", &["dev"])]
        );
        assert_eq!(with("1", &["dev"]).identity(), with("1", &[]));
    }

    #[test]
    fn each_part_is_told_apart_and_some_settings_are_no_part() {
        let old = spec();
        let with = |pointer: &str, value: Value| {
            let mut new = spec();
            new[pointer] = value;
            ChangedParts::between(&old, &new)
        };
        let none = ChangedParts::default();
        assert_eq!(with("drift", json!({"mode": "Report"})), none);
        assert_eq!(with("paused", true.into()), none);
        assert_eq!(with("config", json!({})), none);
        assert!(with("config", json!({"a": ""})).config);
        assert!(with("targetNamespace", "web".into()).template);
        assert_eq!(with("targetNamespace", "".into()), none);
        assert!(with("createNamespace", true.into()).template);
        assert_eq!(with("createNamespace", false.into()), none);
        assert!(with("provisionerClassName", "other".into()).class);
        let account = json!({"namespace": "a", "name": "b"});
        assert!(with("serviceAccount", account).service_account);
        for (member, value) in [
            ("collision", json!("Adopt")),
            ("drift", json!({"ignore": [{"manager": "keda"}]})),
            ("deletion", json!({"objects": "Orphan"})),
            ("rollout", json!({"replace": "Always"})),
        ] {
            let only_settings = ChangedParts {
                settings: true,
                ..none
            };
            assert_eq!(with(member, value), only_settings, "{member}");
            assert!(!only_settings.any_of_content());
        }
        assert_eq!(with("rollout", json!({"history": 3})), none);
        assert_eq!(with("deletion", json!({})), none);
        let mut new = spec();
        new["template"]["metadata"] = json!({"labels": {}});
        assert_eq!(ChangedParts::between(&old, &new), none);
        new["template"]["metadata"] = json!({"labels": {"a": "b"}});
        assert!(ChangedParts::between(&old, &new).template);
    }

    #[test]
    fn requester_of_settings_is_recorded_and_is_the_one_of_the_template_in_earlier_texts() {
        let changed = ChangedParts {
            settings: true,
            ..ChangedParts::default()
        };
        let parts = PartRequesters::all(&person("ana")).changed_by(&person("cora"), changed);
        assert_eq!(parts.content(), [&person("ana")]);
        assert_eq!(
            parts.distinct_requesters(),
            [&person("ana"), &person("cora")]
        );
        let mut text = serde_json::to_value(&parts).unwrap();
        let read: PartRequesters = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(read, parts);
        text.as_object_mut().unwrap().remove("settings");
        let earlier: PartRequesters = serde_json::from_value(text).unwrap();
        assert_eq!(earlier, PartRequesters::all(&person("ana")));
    }

    #[test]
    fn part_that_cannot_be_read_is_unchanged_only_as_written() {
        let mut old = spec();
        old["template"]["spec"]["source"]["type"] = "unknown".into();
        let mut new = old.clone();
        assert!(!ChangedParts::between(&old, &new).any_of_content());
        new["template"]["metadata"] = json!({});
        assert!(ChangedParts::between(&old, &new).template);
    }
}
