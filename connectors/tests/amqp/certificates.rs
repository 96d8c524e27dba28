//! Certificates of the tests' own.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes a CA, a certificate of the server, and one of a client, into this folder.
pub(crate) fn write(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for (name, host) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
