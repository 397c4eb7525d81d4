//! Placement of an object of the content: its namespace, and the labels of its owner.

use bundle_api::names;

use crate::object::{Manifest, ObjectId};
use crate::plan::normalize::normalize;

/// Kind of the object that installs content.
const DEPLOYMENT: &str = "BundleDeployment";

/// Owner of the objects of an installation.
#[derive(Debug, Clone, Copy)]
pub struct ObjectOwner<'a> {
    /// Name of the BundleDeployment.
    pub name: &'a str,
    /// Id of the ApplySet of the BundleDeployment.
    pub applyset: &'a str,
    /// Namespace for namespaced objects that specify no namespace. If the field is `None`, such
    /// objects are rejected.
    pub namespace: Option<&'a str>,
}

impl<'a> ObjectOwner<'a> {
    /// Returns the labels of installed objects.
    pub fn labels(&self) -> [(&'static str, &'a str); 3] {
        [
            (names::LABEL_OWNER_KIND, DEPLOYMENT),
            (names::LABEL_OWNER_NAME, self.name),
            (names::LABEL_APPLYSET_PART_OF, self.applyset),
        ]
    }

    /// Returns the object as it is applied: with its namespace and labels. Returns the id of the
    /// object as an error if the kind is namespaced, and neither the object nor the owner has a
    /// namespace.
    pub fn place(&self, object: Manifest, is_namespaced: bool) -> Result<Manifest, ObjectId> {
        let Manifest {
            mut id,
            mut value,
            file,
            line,
        } = object;
        let named = id
            .namespace
            .take()
            .filter(|namespace| !namespace.is_empty());
        if is_namespaced {
            id.namespace = named.or_else(|| self.namespace.map(str::to_owned));
            if id.namespace.is_none() {
                return Err(id);
            }
        }
        normalize(&mut value, id.namespace.as_deref(), &self.labels());
        Ok(Manifest {
            id,
            value,
            file,
            line,
        })
    }
}
