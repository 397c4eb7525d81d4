//! Checks whether a requester that is a ServiceAccount still exists. The name of a ServiceAccount
//! can be reused, but its uid is unique.

use bundle_core::review::Requester;
use bundle_core::service_account::ServiceAccount;
use k8s_openapi::api::core::v1::ServiceAccount as StoredServiceAccount;
use kube::core::ApiResource;
use kube::core::metadata::PartialObjectMeta;
use kube::{Client, api::DynamicObject};

use crate::{ByName, namespaced};

/// Reason why a requester that is a ServiceAccount has lost its permissions: no ServiceAccount has
/// both the name of the requester and the recorded uid. A new ServiceAccount with the same name
/// does not inherit the permissions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostAccount {
    /// No ServiceAccount has the recorded name, or the ServiceAccount is being deleted.
    #[error("ServiceAccount {0} no longer exists")]
    Deleted(String),
    /// Another ServiceAccount has the recorded name.
    #[error(
        "ServiceAccount {path} was recreated: its uid is {found}, and the recorded uid is {recorded}"
    )]
    Recreated {
        /// Namespace and name of the ServiceAccount.
        path: String,
        /// Uid of the stored ServiceAccount.
        found: String,
        /// Recorded uid of the requester.
        recorded: String,
    },
}

/// Returns a [`LostAccount`] if `requester` is a ServiceAccount that was deleted, or recreated with
/// another uid. Returns `None` for an existing ServiceAccount, and for all other users. `client`
/// needs verb `get` on `serviceaccounts`. Each call reads the ServiceAccount from the API server.
///
/// Access reviews and impersonation use only user name and groups, and do not compare the uid. Call
/// this function before access reviews and impersonation.
pub async fn account_loss(
    client: &Client,
    requester: &Requester,
) -> Result<Option<LostAccount>, kube::Error> {
    let Some((namespace, name)) = requester.service_account() else {
        return Ok(None);
    };
    let Ok(account) = ServiceAccount::parse(namespace, name) else {
        // The name is invalid, so no ServiceAccount can have this name.
        return Ok(Some(LostAccount::Deleted(format!("{namespace}/{name}"))));
    };
    let resource = ApiResource::erase::<StoredServiceAccount>(&());
    let api = namespaced::<DynamicObject>(client, &resource, Some(&account.namespace))?;
    let found: Option<PartialObjectMeta<DynamicObject>> =
        ByName(&api).get_metadata_opt(&account.name).await?;
    let live = found.filter(|found| found.metadata.deletion_timestamp.is_none());
    let path = account.path();
    let Some(live) = live else {
        return Ok(Some(LostAccount::Deleted(path)));
    };
    let found = live.metadata.uid.unwrap_or_default();
    if requester.uid.is_empty() || requester.uid == found {
        return Ok(None);
    }
    Ok(Some(LostAccount::Recreated {
        path,
        found,
        recorded: requester.uid.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const PATH: &str = "/api/v1/namespaces/team-a/serviceaccounts/deployer";

    /// Calls [`account_loss`] for the requester with this user name and uid, on a server that
    /// responds with `status` and `body`. Returns the result, and the number of requests that the
    /// server received.
    async fn result(
        user: &str,
        uid: &str,
        (status, body): (u16, Value),
    ) -> (Result<Option<LostAccount>, kube::Error>, usize) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let answering = tokio::spawn(async move {
            let mut requests = 0;
            while let Some((request, reply)) = server.next_request().await {
                assert_eq!(request.uri().path(), PATH);
                requests += 1;
                let response = Response::builder().status(status);
                let body = Body::from(body.to_string().into_bytes());
                reply.send_response(response.body(body).unwrap());
            }
            requests
        });
        let requester = Requester {
            user: user.to_owned(),
            uid: uid.to_owned(),
            ..Requester::default()
        };
        let client = Client::new(service, "default");
        let found = account_loss(&client, &requester).await;
        drop(client);
        (found, answering.await.unwrap())
    }

    fn stored(metadata: &Value) -> (u16, Value) {
        let body = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        (200, body)
    }

    fn failed(code: u16, reason: &str) -> (u16, Value) {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "failed"});
        (code, body)
    }

    #[tokio::test]
    async fn service_account_is_its_uid_and_other_users_are_not_read() {
        let live = || stored(&json!({"name": "deployer", "uid": "1"}));
        let leaving = json!({"name": "deployer", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
        let robot = "system:serviceaccount:team-a:deployer";
        for (user, uid, response, has_departed, expected) in [
            (robot, "1", live(), false, 1),
            (robot, "2", live(), true, 1),
            // Without a recorded uid, only the name is compared.
            (robot, "", live(), false, 1),
            (robot, "", failed(404, "NotFound"), true, 1),
            (robot, "1", failed(404, "NotFound"), true, 1),
            (robot, "1", stored(&leaving), true, 1),
            ("system:serviceaccount:team-a:../x", "1", live(), true, 0),
            ("system:serviceaccount:team-a", "1", live(), false, 0),
            ("ana", "1", live(), false, 0),
        ] {
            let (found, requests) = result(user, uid, response).await;
            let found = found.unwrap();
            assert_eq!(found.is_some(), has_departed, "{user} {uid}: {found:?}");
            assert_eq!(requests, expected, "{user}");
        }
    }

    #[tokio::test]
    async fn service_account_that_cannot_be_read_is_an_error() {
        let robot = "system:serviceaccount:team-a:deployer";
        for response in [failed(403, "Forbidden"), failed(500, "InternalError")] {
            assert!(result(robot, "1", response).await.0.is_err());
        }
    }
}
