//! Certificates for the tests.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Writes a CA, a server certificate and a client certificate into this folder.
pub(crate) fn write(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // Distinct names: a certificate with its issuer's name would count as self-signed.
    params.distinguished_name.push(DnType::CommonName, "Dwell's tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for (name, host) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
