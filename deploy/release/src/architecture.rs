//! What images are built for.

use anyhow::{Result, bail};

/// An architecture that images are built for, by its name in Go and in OCI images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// x86_64
    Amd64,
    /// aarch64
    Arm64,
}

impl Architecture {
    pub fn of_host() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("there are no images for {other}: build on x86_64 or aarch64"),
        }
    }

    /// In the words of an OCI image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// In the words of Rust.
    pub fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Debian's C compiler for it, which links for another machine as well.
    pub fn compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }
}
