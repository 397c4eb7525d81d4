//! Stamps on objects: what one that is there is worth, and the patch that puts the right one there.
//! Not here: how a stamp is made (bundle_core::review::stamp) and who gets one (the judge).

use bundle_api::names::{ANNOTATION_STAMP, API_VERSION, LABEL_TEMPLATE_HASH};
use bundle_core::review::{
    self, CheckedDeploymentSpec, Kind, Requester, Stamp, Stamping, spec_digest,
};
use serde_json::{Value, json};

/// Whoever asked for what stands in `object`, if it carries a valid stamp.
pub(super) fn stamped(key: &[u8], kind: Kind, name: &str, object: &Value) -> Option<Requester> {
    review::check(
        key,
        annotation(object),
        kind.as_str(),
        name,
        &object["spec"],
    )
    .ok()
}

/// The text of the stamp annotation.
pub(super) fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_STAMP].as_str()
}

/// The stamp that `requester` gets for `object`.
pub(super) fn seal(
    key: &[u8],
    kind: Kind,
    name: &str,
    object: &Value,
    requester: &Requester,
) -> String {
    review::seal(
        key,
        &Stamp {
            kind: kind.as_str().to_owned(),
            name: name.to_owned(),
            spec: spec_digest(&object["spec"]),
            requester: requester.clone(),
        },
    )
}

/// The BundleDeployment that a Bundle says it is made for: name and uid of its controller, and the hash of the template.
pub(super) struct MadeFor<'a> {
    pub(super) name: &'a str,
    uid: &'a str,
    hash: &'a str,
}

impl<'a> MadeFor<'a> {
    pub(super) fn read(bundle: &'a Value) -> Option<Self> {
        let metadata = &bundle["metadata"];
        let owner = metadata["ownerReferences"]
            .as_array()?
            .iter()
            .find(|owner| {
                owner["controller"] == true
                    && owner["kind"] == "BundleDeployment"
                    && owner["apiVersion"] == API_VERSION
            })?;
        Some(Self {
            name: owner["name"].as_str()?,
            uid: owner["uid"].as_str()?,
            hash: metadata["labels"][LABEL_TEMPLATE_HASH].as_str()?,
        })
    }

    /// Whose request it is, if that BundleDeployment carries a valid stamp and its template asks for just this Bundle.
    pub(super) fn asked_for(
        &self,
        key: &[u8],
        bundle: &Value,
        deployment: &Value,
    ) -> Option<Requester> {
        if deployment["metadata"]["uid"] != self.uid {
            return None;
        }
        let requester = stamped(key, Kind::BundleDeployment, self.name, deployment)?;
        let spec = CheckedDeploymentSpec::parse(&deployment["spec"]).ok()?;
        let same =
            spec.template.hash == self.hash && review::same(&spec.template.spec, &bundle["spec"]);
        same.then_some(requester)
    }
}

/// The stamp that an admitted object has to carry: `None` for none.
pub(super) fn wanted(
    key: &[u8],
    stamping: Stamping,
    kind: Kind,
    name: &str,
    (old, new): (Option<&Value>, &Value),
    (requester, inherited): (&Requester, Option<&Requester>),
) -> Option<String> {
    match stamping {
        Stamping::None => None,
        Stamping::Keep => old.and_then(annotation).map(str::to_owned),
        Stamping::Inherit => inherited.map(|from| seal(key, kind, name, new, from)),
        Stamping::Requester => Some(seal(key, kind, name, new, requester)),
    }
}

/// The patch that makes `object` carry that stamp and no other.
pub(super) fn patch(object: &Value, wanted: Option<&str>) -> Option<Value> {
    let path = format!(
        "/metadata/annotations/{}",
        ANNOTATION_STAMP.replace('/', "~1")
    );
    match (annotation(object), wanted) {
        (None, None) => None,
        (Some(found), Some(wanted)) if found == wanted => None,
        (Some(_), None) => Some(json!({"op": "remove", "path": path})),
        (_, Some(wanted)) if object["metadata"]["annotations"].is_object() => {
            Some(json!({"op": "add", "path": path, "value": wanted}))
        }
        (_, Some(wanted)) => Some(
            json!({"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION_STAMP: wanted}}),
        ),
    }
}

/// The name that an object gets whose name the API server was asked to generate. The stamp is over the name, so it is made here, and as there: the
/// prefix, cut to leave room, and five characters that spell no words.
pub(super) fn generated(
    object: &Value,
    kind: Kind,
    random: impl Iterator<Item = u8>,
) -> Option<String> {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LENGTH: usize = 5;
    let prefix = object["metadata"]["generateName"].as_str()?;
    // Kubernetes cuts at 63 characters whatever the kind.
    let room = kind.name_limit().min(63) - LENGTH;
    let mut name: String = prefix.chars().take(room).collect();
    name.extend(
        random
            .take(LENGTH)
            .map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])),
    );
    Some(name)
}
