//! Serving certificates for the webhooks of operators. The pod writes the certificates into the
//! objects that it applies (`bundle_core::serving_certificate`).

use std::collections::BTreeMap;

use bundle_core::diagnostic::codes;
use bundle_core::object::Manifest;
use bundle_core::package::Format;
use bundle_core::serving_certificate::{self, CertificatePeriod};

use crate::blocking;
use crate::certs::OperatorCertificates;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    /// Returns a text that changes when the certificates change. The text contains the period of
    /// the certificates, and an identifier of the stamp key, from which the certificates are
    /// derived. Returns `None` if the content is not an operator. The format of the content is read
    /// from the status, which other clients can write. A wrong format only delays a renewal, or
    /// causes an additional apply.
    pub(in crate::reconcile) fn certificate_version(
        &self,
        request: &InstallRequest<'_>,
    ) -> Option<String> {
        let content = request.generated.status.content.as_ref()?;
        let format = content.format.as_ref()?.parse::<Format>().ok()?;
        (format == Format::RegistryV1).then(|| {
            let id = OperatorCertificates::key_id(&self.ctx.shared.stamp_key());
            self.certificate_period.version(&id)
        })
    }

    /// Writes certificates into the objects of an operator that need a certificate.
    pub(in crate::reconcile) fn write_certificates(
        &self,
        format: Format,
        objects: &mut [Manifest],
        reason: &'static str,
    ) -> Result<(), ReconcileError> {
        if format != Format::RegistryV1 {
            return Ok(());
        }
        let stamp_key = self.ctx.shared.stamp_key();
        let certificates = OperatorCertificates {
            stamp_key: &stamp_key,
            uid: self.object.metadata.uid.as_deref().unwrap_or_default(),
        };
        // Each certificate needs several signatures, and content can have hundreds of Services.
        blocking::run(|| issue_all(&certificates, self.certificate_period, objects, reason))
    }
}

/// Issues one certificate for each Service of `objects` that needs a certificate, and writes the
/// certificates into `objects`.
fn issue_all(
    certificates: &OperatorCertificates<'_>,
    period: CertificatePeriod,
    objects: &mut [Manifest],
    reason: &'static str,
) -> Result<(), ReconcileError> {
    let mut issued = BTreeMap::new();
    for object in objects {
        let Some(service) = serving_certificate::service(object) else {
            continue;
        };
        if !issued.contains_key(&service) {
            let certificate = certificates.issue(&service, period);
            let certificate = certificate.map_err(|error| {
                let (namespace, name) = (&service.namespace, &service.name);
                ReconcileError::new(
                    codes::install::APPLY_FAILED,
                    reason,
                    format!(
                        "certificate of Service {namespace}/{name}: {}",
                        crate::chain(&error)
                    ),
                    RetryPolicy::Slowly,
                )
            })?;
            issued.insert(service.clone(), certificate);
        }
        if let Some(certificate) = issued.get(&service) {
            serving_certificate::write(&mut object.value, certificate);
        }
    }
    Ok(())
}
