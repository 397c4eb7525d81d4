//! Targets of a ProvisionerClass: the namespaces and scopes that installed content may use.

use crate::object::ObjectId;

/// Returns the objects outside of the targets of a class. These are the objects in a namespace that
/// no pattern matches, and cluster-scoped objects if `cluster_scoped` is false.
///
/// A Namespace object counts as an object inside the namespace of its name. A class that allows
/// `team-*` also allows the Namespace object `team-a`, even if the class denies cluster-scoped
/// objects.
pub fn outside_targets<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    namespaces: &[String],
    cluster_scoped: bool,
) -> Vec<&'a ObjectId> {
    let allowed = |namespace: &str| namespaces.iter().any(|pattern| fits(pattern, namespace));
    objects
        .into_iter()
        .filter(|id| match &id.namespace {
            Some(namespace) => !allowed(namespace),
            None if id.group.is_empty() && id.kind == "Namespace" => !allowed(&id.name),
            None => !cluster_scoped,
        })
        .collect()
}

/// Returns true if `name` matches `pattern`, in which `*` matches any sequence of characters, also
/// an empty sequence. Each part between two stars matches at its first place in `name`: the time
/// does not grow with the number of ways to divide `name`.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (parts, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let tail = name.strip_prefix(start);
    let Some(mut tail) = tail.and_then(|tail| tail.strip_suffix(end)) else {
        return false;
    };
    parts.split('*').all(|part| {
        let Some((_, after)) = tail.split_once(part) else {
            return false;
        };
        tail = after;
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, namespace: Option<&str>, name: &str) -> ObjectId {
        ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn returns_objects_outside_of_the_targets() {
        let objects = [
            object("ConfigMap", Some("team-a"), "in"),
            object("ConfigMap", Some("kube-system"), "out"),
            object("Namespace", None, "team-a"),
            object("Namespace", None, "other"),
            object("ClusterThing", None, "x"),
        ];
        let names = |patterns: &[&str], cluster_scoped| {
            let patterns: Vec<_> = patterns.iter().map(|&p| p.to_owned()).collect();
            outside_targets(&objects, &patterns, cluster_scoped)
                .into_iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&["*"], true), Vec::<String>::new());
        assert_eq!(
            names(&["team-*"], false),
            [
                "ConfigMap/kube-system/out",
                "Namespace/other",
                "ClusterThing/x"
            ]
        );
        assert_eq!(names(&[], true).len(), 4);
    }

    #[test]
    fn star_matches_any_run_of_characters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("*-a", "team-a", true),
            ("a", "ab", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a**b", "ab", true),
            ("*b*", "abc", true),
            ("*b*b*", "abc", false),
            ("a*b*c*d", "abcbcd", true),
            ("a*bc*cd", "abcd", false),
            ("é*é", "éaé", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// A test of all ways to divide the name would need years.
    #[test]
    fn patterns_with_many_stars_need_little_time() {
        let (name, stars) = ("-".repeat(63), "*-".repeat(20));
        assert!(!fits(&format!("{stars}*a*"), &name));
        assert!(fits(&stars, &name));
    }
}
