module jobset-release-tools

go 1.26.0

tool (
	github.com/google/go-containerregistry/cmd/crane
	github.com/rhysd/actionlint/cmd/actionlint
)

require (
	github.com/google/go-containerregistry v0.22.1
	github.com/rhysd/actionlint v1.7.12
)
