//! Feature gates: what can be switched on and off without another build.

use std::str::FromStr;

/// Which features are on. Controller and webhook read the same flag, `--feature-gates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Restart strategy InPlaceRestart (KEP-467). Off: no JobSet may ask for it, and those that did are restarted by
    /// recreation.
    pub in_place_restart: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { in_place_restart: true }
    }
}

/// The flag's value is not a list of known gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InvalidGates {
    #[error("{0:?} is not of the form Gate=true or Gate=false")]
    Form(String),
    #[error("unknown feature gate {0:?}, known is InPlaceRestart")]
    Unknown(String),
}

/// `InPlaceRestart=false`, several separated by commas; gates that are not named keep their default.
impl FromStr for Gates {
    type Err = InvalidGates;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut gates = Self::default();
        for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
            let (name, value) = gate.split_once('=').ok_or_else(|| InvalidGates::Form(gate.to_owned()))?;
            let value = value.trim().parse().map_err(|_| InvalidGates::Form(gate.to_owned()))?;
            match name.trim() {
                "InPlaceRestart" => gates.in_place_restart = value,
                unknown => return Err(InvalidGates::Unknown(unknown.to_owned())),
            }
        }
        Ok(gates)
    }
}

impl std::fmt::Display for Gates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InPlaceRestart={}", self.in_place_restart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_as_kubernetes_writes_them() {
        assert_eq!("".parse(), Ok(Gates::default()));
        assert_eq!("InPlaceRestart=false".parse(), Ok(Gates { in_place_restart: false }));
        assert_eq!(" InPlaceRestart=false , InPlaceRestart=true,".parse(), Ok(Gates::default()));
        assert_eq!("InPlaceRestart".parse::<Gates>(), Err(InvalidGates::Form("InPlaceRestart".to_owned())));
        assert_eq!("InPlaceRestart=1".parse::<Gates>(), Err(InvalidGates::Form("InPlaceRestart=1".to_owned())));
        assert_eq!("Elastic=true".parse::<Gates>(), Err(InvalidGates::Unknown("Elastic".to_owned())));
        let written = Gates::default().to_string();
        assert_eq!(written.parse(), Ok(Gates::default()));
    }
}
