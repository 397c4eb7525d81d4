//! Rules of roles as access reviews, one review for each single permission. A rule of 1 KiB can
//! expand to millions of access reviews, so the reviews are counted before they are created.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::AccessReview;

/// Maximum number of access reviews for all roles of a content. A rule of 1 KiB can expand to
/// millions of permissions.
const MAX_QUESTIONS: usize = 10_000;
/// Maximum length of all texts in the access reviews for all roles of a content, in bytes.
const MAX_QUESTION_TEXTS: usize = 1 << 20;
/// Maximum length of one text in an access review, in bytes. This limit equals the maximum length
/// of an object name.
const MAX_TEXT: usize = 253;

/// Number of access reviews that the roles of one content can still expand to. A role that expands
/// to more access reviews requires verb `escalate` or `bind`.
#[derive(Debug)]
pub struct AccessReviewBudget {
    questions: usize,
    texts: usize,
}

impl Default for AccessReviewBudget {
    fn default() -> Self {
        Self {
            questions: MAX_QUESTIONS,
            texts: MAX_QUESTION_TEXTS,
        }
    }
}

impl AccessReviewBudget {
    /// Subtracts the access reviews of `rules` from the budget. Returns `false` if the reviews
    /// exceed the budget, or if a text in a rule is longer than an API server accepts. In this case
    /// the budget is unchanged.
    pub fn take(&mut self, rules: &[RoleRule<'_>]) -> bool {
        let (mut questions, mut texts) = (self.questions, self.texts);
        for rule in rules {
            let cost = rule.cost().and_then(|cost| {
                Some((questions.checked_sub(cost.0)?, texts.checked_sub(cost.1)?))
            });
            let Some(left) = cost else {
                return false;
            };
            (questions, texts) = left;
        }
        *self = Self { questions, texts };
        true
    }
}

/// Rule in the JSON of a Role or ClusterRole. The rule borrows its texts, because content can have
/// millions of texts.
#[derive(Debug, Clone, Copy)]
pub struct RoleRule<'a>(&'a Value);

/// Rule that allows everything, for an aggregated role whose rules are not yet aggregated.
static ALL_PERMISSIONS: LazyLock<Value> = LazyLock::new(
    || json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}),
);

impl<'a> RoleRule<'a> {
    fn texts(self, key: &str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let list = self.0[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str)
    }

    /// Returns upper bounds of the number of access reviews that [`Self::questions`] returns, and
    /// of the length of their texts. Returns `None` if a text is too long for an access review.
    fn cost(self) -> Option<(usize, usize)> {
        let size = |key| {
            let mut texts = self.texts(key);
            texts.try_fold((0_usize, 0_usize), |(count, length), text| {
                (text.len() <= MAX_TEXT).then_some((count + 1, length + text.len()))
            })
        };
        let verbs = size("verbs")?;
        let names = size("resourceNames")?;
        let of_objects = product(&[
            verbs,
            size("apiGroups")?,
            size("resources")?,
            (names.0.max(1), names.1),
        ]);
        let of_paths = product(&[verbs, size("nonResourceURLs")?]);
        Some((
            of_objects.0.saturating_add(of_paths.0),
            of_objects.1.saturating_add(of_paths.1),
        ))
    }

    /// Returns each single permission of the rule as an access review. Non-resource URLs are
    /// included only for ClusterRoles that are bound for the whole cluster, as in the API server.
    /// The time depends on the number of access reviews and on the size of the rule: combinations
    /// that are no permission, for example because the rule has no resources, are not tried.
    pub fn questions(
        self,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = AccessReview> + Send + use<'a> {
        let scopes = self.scopes();
        let scopes = (0..scopes.len()).map(move |index| scopes.get(index));
        let paths = namespace.is_none().then(|| self.texts("nonResourceURLs"));
        let paths: Arc<[&str]> = paths.into_iter().flatten().collect();
        let paths = (0..paths.len()).map(move |index| paths[index]);
        self.texts("verbs").flat_map(move |verb| {
            let of_objects = scopes.clone().map(move |(group, resource, name)| {
                AccessReview::resource(verb, group, resource, namespace, name)
            });
            let of_paths = paths.clone().map(move |path| AccessReview::Path {
                verb: verb.to_owned(),
                path: path.to_owned(),
            });
            of_objects.chain(of_paths)
        })
    }

    /// Returns the combinations of API groups, resources and names of the rule.
    fn scopes(self) -> Scopes<'a> {
        let is_complete = ["apiGroups", "resources"]
            .iter()
            .all(|key| self.texts(key).next().is_some());
        if !is_complete {
            return Scopes::default();
        }
        let mut names: Vec<_> = self.texts("resourceNames").map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        Scopes {
            groups: self.texts("apiGroups").collect(),
            resources: self.texts("resources").collect(),
            names: names.into(),
        }
    }
}

/// Combinations of API groups, resources and names.
#[derive(Debug, Clone, Default)]
struct Scopes<'a> {
    groups: Arc<[&'a str]>,
    resources: Arc<[&'a str]>,
    /// One entry `None` for all names.
    names: Arc<[Option<&'a str>]>,
}

impl<'a> Scopes<'a> {
    fn len(&self) -> usize {
        let of_groups = self.groups.len().saturating_mul(self.resources.len());
        of_groups.saturating_mul(self.names.len())
    }

    fn get(&self, index: usize) -> (&'a str, &'a str, Option<&'a str>) {
        let (index, name) = (index / self.names.len(), index % self.names.len());
        let (group, resource) = (index / self.resources.len(), index % self.resources.len());
        (
            self.groups[group],
            self.resources[resource],
            self.names[name],
        )
    }
}

/// Returns the number of combinations of one text from each list, and the total length of the texts
/// in all combinations. Each entry of `lists` has the number of texts in one list, and their total
/// length.
fn product(lists: &[(usize, usize)]) -> (usize, usize) {
    let count = |lists: &[(usize, usize)]| {
        let counts = lists.iter().map(|(count, _)| *count);
        counts.fold(1, usize::saturating_mul)
    };
    let all = count(lists);
    let lengths = lists
        .iter()
        .map(|(count, length)| length.saturating_mul(all.checked_div(*count).unwrap_or_default()));
    (all, lengths.fold(0, usize::saturating_add))
}

/// Returns the rules of a Role or ClusterRole that is not applied yet. For an aggregated role, the
/// rules are not known yet. Therefore such a role is treated as a role with all permissions, as in
/// the API server.
fn rules_of(role: &Value) -> Vec<RoleRule<'_>> {
    let mut rules = rules_of_role(role);
    if role["aggregationRule"].is_object() {
        rules.push(RoleRule(&ALL_PERMISSIONS));
    }
    rules
}

/// Returns the rules of a Role or ClusterRole on the cluster, including aggregated rules. Rules
/// without verbs grant no permission and are omitted: a role can have hundreds of thousands of
/// them.
fn rules_of_role(role: &Value) -> Vec<RoleRule<'_>> {
    let rules = role["rules"].as_array().into_iter().flatten();
    let rules = rules.map(RoleRule);
    rules
        .filter(|rule| rule.texts("verbs").next().is_some())
        .collect()
}

/// Returns the rules of a role after `stated` is applied over `live`, including rules that
/// aggregation may add. `stated` and `live` are both optional.
///
/// An applied role without `rules` keeps the rules on the cluster. An aggregated role, in the
/// content or on the cluster, is treated as a role with all permissions: the controller of
/// aggregated roles sets the rules again after every apply.
pub fn rules_after<'a>(stated: Option<&'a Value>, live: Option<&'a Value>) -> Vec<RoleRule<'a>> {
    let Some(stated) = stated else {
        return live.map(rules_of_role).unwrap_or_default();
    };
    let mut rules = rules_of(stated);
    if let Some(live) = live {
        if !stated["rules"].is_array() {
            rules.extend(rules_of_role(live));
        }
        if live["aggregationRule"].is_object() {
            rules.extend(rules_of(live));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(rule: RoleRule<'_>, namespace: Option<&str>) -> Vec<AccessReview> {
        let namespace = namespace.map(str::to_owned);
        rule.questions(namespace.as_deref()).collect()
    }

    fn many(count: usize, length: usize) -> Vec<String> {
        (0..count)
            .map(|number| format!("{number:0length$}"))
            .collect()
    }

    /// Returns a rule with `count` texts of this length in each list.
    fn wide(count: usize, length: usize) -> Value {
        let texts = many(count, length);
        json!({
            "verbs": texts, "apiGroups": texts, "resources": texts, "resourceNames": texts,
            "nonResourceURLs": texts,
        })
    }

    fn texts(question: &AccessReview) -> usize {
        match question {
            AccessReview::Resource {
                verb,
                group,
                resource,
                name,
                ..
            } => {
                let name = name.as_ref().map_or(0, String::len);
                verb.len() + group.len() + resource.len() + name
            }
            AccessReview::Path { verb, path } => verb.len() + path.len(),
        }
    }

    #[test]
    fn cost_of_a_rule_is_that_of_its_access_reviews() {
        let nameless = |mut rule: Value| {
            rule["resourceNames"] = Value::Null;
            rule
        };
        for value in [
            wide(3, 5),
            nameless(wide(3, 5)),
            json!({"verbs": ["get"]}),
            json!({}),
        ] {
            let rule = RoleRule(&value);
            let all = questions(rule, None);
            let lengths = all.iter().map(texts).sum();
            assert_eq!(rule.cost(), Some((all.len(), lengths)), "{value}");
        }
    }

    /// With the combinations of all values of these lists, this test would need many minutes.
    #[test]
    fn values_that_give_no_permission_cost_no_time_for_each_combination() {
        let texts = many(100_000, 1);
        let mixed = |count: usize| {
            let numbers = std::iter::repeat_n(json!(1), count);
            numbers.chain([json!("a")]).collect::<Vec<_>>()
        };
        for (value, expected) in [
            (json!({"verbs": texts, "apiGroups": texts}), 0),
            (
                json!({"verbs": texts, "apiGroups": texts, "resourceNames": texts}),
                0,
            ),
            (
                json!({"verbs": texts, "resources": texts, "resourceNames": texts}),
                0,
            ),
            (
                json!({
                    "verbs": many(5_000, 1), "apiGroups": mixed(100_000),
                    "resources": mixed(100_000), "resourceNames": mixed(100_000),
                    "nonResourceURLs": mixed(100_000),
                }),
                10_000,
            ),
        ] {
            let rule = RoleRule(&value);
            assert!(AccessReviewBudget::default().take(&[rule]));
            assert_eq!(rule.questions(None).count(), expected);
        }
    }

    #[test]
    fn access_reviews_of_all_roles_of_a_content_are_bounded() {
        let mut budget = AccessReviewBudget::default();
        let take = |budget: &mut AccessReviewBudget, rule: &Value| budget.take(&[RoleRule(rule)]);
        // 10^4 reviews for objects and the reviews for paths together exceed the limit.
        assert!(!take(&mut budget, &wide(10, 5)));
        // This rule needs 9^4 + 9^2 of the 10,000 reviews.
        assert!(take(&mut budget, &wide(9, 5)));
        assert!(!take(&mut budget, &wide(9, 5)));
        assert!(take(&mut budget, &wide(7, 5)));
        // Reviews with texts of 253 bytes exceed the limit of the length, but not the limit of the
        // number.
        let mut budget = AccessReviewBudget::default();
        assert!(take(&mut budget, &wide(5, MAX_TEXT)));
        assert!(!take(&mut budget, &wide(5, MAX_TEXT)));
        assert!(!take(&mut AccessReviewBudget::default(), &wide(70_000, 1)));
    }

    #[test]
    fn texts_that_no_api_server_accepts_are_not_asked() {
        for key in [
            "verbs",
            "apiGroups",
            "resources",
            "resourceNames",
            "nonResourceURLs",
        ] {
            for (length, expected) in [(MAX_TEXT, true), (MAX_TEXT + 1, false)] {
                let mut rule = wide(1, 1);
                rule[key] = json!(["a".repeat(length)]);
                let mut budget = AccessReviewBudget::default();
                assert_eq!(budget.take(&[RoleRule(&rule)]), expected, "{key} {length}");
            }
        }
    }

    #[test]
    fn expands_rule_into_single_permissions() {
        let role = json!({ "rules": [
            { "apiGroups": ["", "apps"], "resources": ["pods", "pods/log"], "verbs": ["get", "list"], "resourceNames": ["a", "b"] },
            { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
        ] });
        let rules = rules_of(&role);
        assert_eq!(questions(rules[0], Some("n")).len(), 16);
        assert_eq!(
            questions(rules[1], None),
            [AccessReview::Path {
                verb: "get".to_owned(),
                path: "/metrics".to_owned()
            }]
        );
        assert_eq!(questions(rules[1], Some("n")), []);
    }

    #[test]
    fn rules_without_verbs_are_omitted() {
        let mut rules = vec![json!({}); 100_000];
        rules.push(json!({ "apiGroups": [""], "resources": ["pods"], "verbs": [] }));
        rules.push(json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }));
        assert_eq!(rules_of(&json!({ "rules": rules })).len(), 1);
    }

    #[test]
    fn aggregated_role_counts_as_all_permissions() {
        let role = json!({ "aggregationRule": {}, "rules": null });
        let all = questions(rules_of(&role)[0], None);
        assert!(all.contains(&AccessReview::resource("*", "*", "*", None, None)));
        assert_eq!(all.len(), 2);
        // A role in a cluster contains its aggregated rules.
        let collected = json!({ "aggregationRule": {}, "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] });
        assert_eq!(rules_of_role(&collected).len(), 1);
        assert_eq!(questions(rules_of_role(&collected)[0], None).len(), 1);
    }

    #[test]
    fn role_after_apply_includes_kept_and_aggregated_rules() {
        let rule = |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get"] });
        let live = json!({ "rules": [rule("secrets")] });
        let resources = |stated: Option<&Value>, live: Option<&Value>| {
            let rules = rules_after(stated, live);
            let all: Vec<&str> = rules
                .iter()
                .flat_map(|rule| rule.texts("resources"))
                .collect();
            all.join(" ")
        };
        for silent in [json!({}), json!({ "rules": null })] {
            assert_eq!(resources(Some(&silent), Some(&live)), "secrets");
            assert_eq!(resources(Some(&silent), None), "");
        }
        let own = json!({ "rules": [rule("pods")] });
        assert_eq!(resources(Some(&own), Some(&live)), "pods");
        assert_eq!(resources(None, Some(&live)), "secrets");
        assert_eq!(resources(None, None), "");
        let collected =
            json!({ "aggregationRule": {"clusterRoleSelectors": []}, "rules": [rule("secrets")] });
        for stated in [json!({ "rules": [] }), json!({})] {
            assert!(resources(Some(&stated), Some(&collected)).contains('*'));
        }
        assert_eq!(resources(None, Some(&collected)), "secrets");
    }
}
