//! Validated names and namespaces in URLs.

use bundle_core::names::{KubeName, NameKind};
use kube::api::DynamicObject;
use kube::core::discovery::ApiResource;
use kube::core::request::Error as RequestError;
use kube::core::{DynamicResourceScope, Request};
use kube::{Api, Client, Resource};

/// Parses the name of an object of any kind.
pub(crate) fn object_name(text: &str) -> Result<KubeName, kube::Error> {
    parse(NameKind::PathSegment, text).map_err(kube::Error::BuildRequest)
}

pub(crate) fn parse(kind: NameKind, text: &str) -> Result<KubeName, RequestError> {
    KubeName::parse(kind, text).map_err(|why| {
        // The error quotes only the start, because a name can be as long as the object that
        // contains it.
        let start: String = text.chars().take(80).collect();
        RequestError::Validation(format!("{start:?} is not a valid name: {why}"))
    })
}

/// Returns the API of `resource` in `namespace`, or cluster-wide for `None`. Fails if `namespace`
/// is invalid.
pub fn namespaced<K>(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Api<K>, kube::Error>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => {
            let namespace = parse(NameKind::Label, namespace).map_err(kube::Error::BuildRequest)?;
            #[expect(clippy::disallowed_methods, reason = "the namespace was parsed")]
            Ok(Api::namespaced_with(client.clone(), &namespace, resource))
        }
        None => Ok(Api::all_with(client.clone(), resource)),
    }
}

/// URL of one object, with validated parts.
#[derive(Debug, Clone)]
pub struct ObjectUrl {
    collection: String,
    name: KubeName,
}

impl ObjectUrl {
    /// Parses namespace and name. Fails if the namespace or the name is invalid.
    pub fn parse(
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Self, RequestError> {
        let namespace = namespace
            .map(|text| parse(NameKind::Label, text))
            .transpose()?;
        Ok(Self {
            collection: DynamicObject::url_path(resource, namespace.as_deref()),
            name: parse(NameKind::PathSegment, name)?,
        })
    }

    /// Returns a request builder for the collection that contains the object.
    pub fn requests(&self) -> Request {
        Request::new(self.collection.clone())
    }

    /// Returns the name of the object. The caller passes the name to the methods of the request
    /// builder.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the path of the object.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> ApiResource {
        ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            plural: "secrets".to_owned(),
        }
    }

    #[test]
    fn urls_of_objects_end_in_their_name() {
        let url = ObjectUrl::parse(&secrets(), Some("team-a"), "web").unwrap();
        assert_eq!(url.path(), "/api/v1/namespaces/team-a/secrets/web");
        ObjectUrl::parse(&secrets(), None, "system:node").unwrap();
    }

    #[test]
    fn rejects_names_that_change_the_path() {
        for (namespace, name) in [
            ("team-a", "?watch=true&timeoutSeconds=3"),
            ("team-a", "web?watch=true"),
            ("team-a", "web/status"),
            ("team-a", ".."),
            ("team-a", ""),
            ("team-a", "web#x"),
            ("team-a", "%2e%2e"),
            ("team-a/secrets/web?x=", "web"),
            ("..", "web"),
            ("", "web"),
        ] {
            let url = ObjectUrl::parse(&secrets(), Some(namespace), name);
            assert!(url.is_err(), "{namespace:?} {name:?}");
        }
    }
}
