//! Limits for the size of reviewed objects, so that the webhook can read every object that a write
//! stores.

use serde_json::Value;

use crate::diagnostic::{Finding, Findings, codes};

/// Maximum number of finalizers of one object.
const FINALIZERS_LIMIT: usize = 32;
/// Maximum number of owner references of one object.
const OWNERS_LIMIT: usize = 64;
/// Maximum lengths of texts in the entries of lists of `metadata`: name of the list, JSON pointer
/// to the text in an entry, limit in bytes. API servers do not limit the texts of owner references,
/// and check finalizers only when an object is created. Uids of API servers have 36 bytes.
const ENTRY_TEXT_LIMITS: [(&str, &str, usize); 5] = [
    ("finalizers", "", 253 + 1 + 63),
    ("ownerReferences", "/apiVersion", 253 + 1 + 63),
    ("ownerReferences", "/kind", 63),
    ("ownerReferences", "/name", 253),
    ("ownerReferences", "/uid", 128),
];
/// Maximum length of all keys and values of labels and annotations, in bytes. API servers allow 256
/// KiB of annotations, and any number of labels.
pub const TEXT_LIMIT: usize = 320 << 10;
/// Maximum length of all keys and values of annotations, except the stamp, in bytes. API servers
/// accept 256 KiB (`TotalAnnotationSizeLimitB` of apimachinery). The remaining 64 KiB are reserved
/// for the stamp, because every write needs a stamp.
const ANNOTATIONS_LIMIT: usize = 192 << 10;
/// Maximum growth of the weight of an object that exceeds a weight limit, in bytes: an entry of
/// `managedFields`, and the stamp.
const GROWTH: usize = 16 << 10;
/// Annotation that the webhook adds to a write.
const STAMP: &str = "core.rukpak.io/stamp";

/// Estimated memory of the parts of an object (weight), in bytes. The webhook uses the same
/// estimate to limit responses of the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectWeight {
    /// Weight of `metadata`.
    pub metadata: usize,
    /// Weight of all fields except `metadata` and `status`.
    pub content: usize,
    /// True if values are nested deeper than the limit for reads of the webhook.
    pub is_too_deep: bool,
}

/// Maximum weights after a write, in bytes. These limits are lower than the limits for reads,
/// because they do not include the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightLimits {
    /// Maximum weight of `metadata`.
    pub metadata: usize,
    /// Maximum weight of the whole object except `status`.
    pub whole: usize,
}

/// Object with its estimated memory (weight).
#[derive(Debug, Clone, Copy)]
pub struct MeasuredObject<'a> {
    /// The object itself.
    pub object: &'a Value,
    /// Weight of the object.
    pub weight: ObjectWeight,
}

/// Returns a finding for each limit that a write exceeds. If the stored object already exceeds a
/// limit, an update may keep or reduce the exceeded value. A weight above the limit may grow by up
/// to `GROWTH`.
pub fn judge_size(
    old: Option<MeasuredObject<'_>>,
    new: MeasuredObject<'_>,
    limits: WeightLimits,
) -> Findings {
    let mut findings = Findings::default();
    let mut refuse = |field: &str, message: String, hint: &str| {
        let finding = Finding::error(codes::review::TOO_LARGE_TO_READ, message);
        findings.push(finding.hint(hint).at_field(field));
    };
    for (field, limit) in [
        ("finalizers", FINALIZERS_LIMIT),
        ("ownerReferences", OWNERS_LIMIT),
    ] {
        let count = entries(new.object, field);
        let before = old.map_or(0, |old| entries(old.object, field));
        if count > limit && count > before {
            refuse(
                &format!("metadata.{field}"),
                format!(
                    "the object has {count} entries in metadata.{field}, more than the limit of {limit}"
                ),
                "remove entries; an update that removes only some of the entries is admitted too",
            );
        }
    }
    for (list, pointer, limit) in ENTRY_TEXT_LIMITS {
        let longest = longest_text(new.object, list, pointer);
        let before = old.map_or(0, |old| longest_text(old.object, list, pointer));
        if longest > limit && longest > before {
            refuse(
                &format!("metadata.{list}{}", pointer.replace('/', ".")),
                format!(
                    "an entry of metadata.{list} has a text of {longest} bytes, more than the limit of {limit}"
                ),
                "remove the entry",
            );
        }
    }
    for (field, what, measure, limit) in [
        (
            "metadata",
            "labels and annotations",
            text as fn(&Value) -> usize,
            TEXT_LIMIT,
        ),
        (
            "metadata.annotations",
            "annotations",
            annotations,
            ANNOTATIONS_LIMIT,
        ),
    ] {
        let size = measure(new.object);
        if size > limit && size > old.map_or(0, |old| measure(old.object)) {
            refuse(
                field,
                format!(
                    "{what} have {} KiB, more than the limit of {} KiB",
                    size.div_ceil(1 << 10),
                    limit >> 10
                ),
                &format!(
                    "remove {what}; an update that removes only some of these values is admitted too"
                ),
            );
        }
    }
    let weight = new.weight;
    let is_shrinking = old.is_some_and(|old| {
        !old.weight.fits(limits) && weight.sum() <= old.weight.sum().saturating_add(GROWTH)
    });
    if !weight.fits(limits) && !is_shrinking {
        let message = if weight.is_too_deep {
            "values of the object are nested too deep, so the webhook could not read it".to_owned()
        } else {
            format!(
                "the object needs {} MiB of memory ({} MiB for metadata), more than the limit of {} MiB ({} MiB for metadata)",
                weight.sum().div_ceil(1 << 20),
                weight.metadata.div_ceil(1 << 20),
                limits.whole >> 20,
                limits.metadata >> 20
            )
        };
        refuse(
            "",
            message,
            "use fewer and longer values: many small values need the most memory",
        );
    }
    findings
}

impl ObjectWeight {
    fn sum(self) -> usize {
        self.metadata.saturating_add(self.content)
    }

    fn fits(self, limits: WeightLimits) -> bool {
        !self.is_too_deep && self.metadata <= limits.metadata && self.sum() <= limits.whole
    }
}

fn entries(object: &Value, field: &str) -> usize {
    object["metadata"][field].as_array().map_or(0, Vec::len)
}

/// Returns the length of the longest text at `pointer` in the entries of `list`, in bytes.
fn longest_text(object: &Value, list: &str, pointer: &str) -> usize {
    let entries = object["metadata"][list].as_array().into_iter().flatten();
    let texts = entries.filter_map(|entry| entry.pointer(pointer)?.as_str());
    texts.map(str::len).max().unwrap_or_default()
}

/// Returns the length of labels and annotations without the stamp.
fn text(object: &Value) -> usize {
    map_bytes(object, "labels") + annotations(object)
}

/// Returns the length of annotations without the stamp.
fn annotations(object: &Value) -> usize {
    map_bytes(object, "annotations")
}

fn map_bytes(object: &Value, field: &str) -> usize {
    object["metadata"][field]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != STAMP)
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    const LIMITS: WeightLimits = WeightLimits {
        metadata: 100_000,
        whole: 200_000,
    };

    fn object(finalizers: usize, owners: usize, label_bytes: usize) -> Value {
        let finalizers: Vec<_> = (0..finalizers).map(|n| format!("a/{n}")).collect();
        let owners: Vec<_> = (0..owners).map(|n| json!({"uid": n})).collect();
        json!({"metadata": {
            "finalizers": finalizers, "ownerReferences": owners, "labels": {"a": "x".repeat(label_bytes)},
            "annotations": {STAMP: "x".repeat(1000)},
        }})
    }

    fn fields(old: Option<&Value>, new: &Value) -> Vec<String> {
        let measured = |object| MeasuredObject {
            object,
            weight: ObjectWeight::default(),
        };
        let findings = judge_size(old.map(measured), measured(new), LIMITS);
        let findings = findings.into_iter();
        findings.filter_map(|finding| finding.place.field).collect()
    }

    #[test]
    fn each_list_of_metadata_has_a_bound_that_updates_may_come_closer_to() {
        let at_limit = object(FINALIZERS_LIMIT, OWNERS_LIMIT, TEXT_LIMIT - 1);
        assert_eq!(fields(None, &at_limit), [""; 0]);
        let above = object(FINALIZERS_LIMIT + 1, OWNERS_LIMIT + 1, TEXT_LIMIT);
        let expected = [
            "metadata.finalizers",
            "metadata.ownerReferences",
            "metadata",
        ];
        assert_eq!(fields(None, &above), expected);
        assert_eq!(fields(Some(&at_limit), &above), expected);
        let far_above = object(FINALIZERS_LIMIT + 2, OWNERS_LIMIT + 2, TEXT_LIMIT + 1);
        for old in [&above, &far_above] {
            assert_eq!(fields(Some(old), &above), [""; 0]);
        }
        assert_eq!(fields(Some(&above), &far_above), expected);
        // The size does not include the stamp.
        let mut without_stamp = above.clone();
        without_stamp["metadata"]["annotations"] = Value::Object(Map::new());
        assert_eq!(fields(Some(&without_stamp), &above), [""; 0]);
    }

    #[test]
    fn each_text_of_an_entry_has_a_bound_that_updates_may_come_closer_to() {
        let finalizer = |bytes| json!({"metadata": {"finalizers": ["a/b", "x".repeat(bytes)]}});
        let owner = |field: &str, bytes: usize| {
            let long = json!({field: "x".repeat(bytes)});
            json!({"metadata": {"ownerReferences": [{"name": "web", "uid": 1}, long]}})
        };
        for (field, limit) in [
            ("finalizers", 317),
            ("ownerReferences.apiVersion", 317),
            ("ownerReferences.kind", 63),
            ("ownerReferences.name", 253),
            ("ownerReferences.uid", 128),
        ] {
            let object = |bytes| match field.split_once('.') {
                Some((_, text)) => owner(text, bytes),
                None => finalizer(bytes),
            };
            let [at_limit, above, far_above] = [0, 1, 2].map(|excess| object(limit + excess));
            let expected = [format!("metadata.{field}")];
            assert_eq!(fields(None, &at_limit), [""; 0], "{field}");
            assert_eq!(fields(None, &above), expected, "{field}");
            assert_eq!(fields(Some(&at_limit), &above), expected, "{field}");
            assert_eq!(fields(Some(&above), &far_above), expected, "{field}");
            for old in [&above, &far_above] {
                assert_eq!(fields(Some(old), &above), [""; 0], "{field}");
            }
        }
    }

    #[test]
    fn annotations_have_a_bound_that_leaves_space_for_the_stamp() {
        let object = |bytes| json!({"metadata": {"annotations": {"a": "x".repeat(bytes - 1), STAMP: "x".repeat(1000)}}});
        let (at_limit, above) = (object(ANNOTATIONS_LIMIT), object(ANNOTATIONS_LIMIT + 1));
        assert_eq!(fields(None, &at_limit), [""; 0]);
        assert_eq!(fields(None, &above), ["metadata.annotations"]);
        assert_eq!(fields(Some(&at_limit), &above), ["metadata.annotations"]);
        assert_eq!(fields(Some(&above), &above), [""; 0]);
        assert_eq!(fields(Some(&above), &at_limit), [""; 0]);
    }

    #[test]
    fn weight_has_a_bound_that_updates_may_come_closer_to() {
        let weight = |metadata, content, is_too_deep| ObjectWeight {
            metadata,
            content,
            is_too_deep,
        };
        let value = json!({});
        let admitted = |old: Option<ObjectWeight>, new| {
            let measured = |weight| MeasuredObject {
                object: &value,
                weight,
            };
            judge_size(old.map(measured), measured(new), LIMITS).is_empty()
        };
        let (fits, at) = (weight(1, 1, false), weight(100_000, 100_000, false));
        let (large, larger) = (weight(100_001, 1, false), weight(150_000, 100_000, false));
        let deep = weight(1, 1, true);
        for (old, new, expected) in [
            (None, at, true),
            (None, large, false),
            (None, weight(1, 200_000, false), false),
            (None, deep, false),
            (Some(at), large, false),
            (Some(fits), deep, false),
            (Some(larger), large, true),
            (Some(larger), weight(150_001, 100_000, false), true),
            (Some(large), larger, false),
            (Some(deep), fits, true),
            (Some(deep), deep, true),
        ] {
            assert_eq!(admitted(old, new), expected, "{old:?} {new:?}");
        }
    }
}
