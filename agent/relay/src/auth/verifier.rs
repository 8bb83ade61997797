//! Signatures of tokens by ring, which TLS uses already.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// The cryptography of `jsonwebtoken`. The relay signs no token.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has `jsonwebtoken` verify by ring. May be called again.
pub(crate) fn install() {
    // It fails where it has been installed already, by this function alone.
    let _installed = PROVIDER.install_default();
}

/// How signatures of an algorithm are verified.
#[derive(Clone, Copy)]
enum Scheme {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

struct RingVerifier {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self> {
        let scheme = match algorithm {
            Algorithm::RS256 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Scheme::Curve(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Scheme::Curve(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Scheme::Curve(&ED25519),
            _ => return Err(ErrorKind::InvalidAlgorithm.into()),
        };
        if algorithm.family() != key.family() {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        Ok(Self { algorithm, scheme, key: key.clone() })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (self.scheme, self.key.kind()) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Scheme::Curve(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7515, appendix A.2.
    const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    #[test]
    fn signature_of_rfc_7515_verifies_its_own_message_alone() {
        install();
        let key = DecodingKey::from_rsa_components(MODULUS, "AQAB").unwrap();
        let verify = |message: &str| {
            jsonwebtoken::crypto::verify(SIGNATURE, message.as_bytes(), &key, Algorithm::RS256).unwrap()
        };
        assert!(verify(MESSAGE));
        assert!(!verify(&MESSAGE.replace('Q', "R")));
    }

    #[test]
    fn algorithm_of_another_family_has_no_verifier() {
        let key = DecodingKey::from_rsa_components(MODULUS, "AQAB").unwrap();
        for algorithm in [Algorithm::ES256, Algorithm::EdDSA, Algorithm::HS256] {
            assert!(RingVerifier::new(algorithm, &key).is_err());
        }
    }
}
