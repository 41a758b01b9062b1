module github.com/sailplane-dev/sailplane/test/inputs

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/crossplane/crossplane/v2 v2.1.3
	sigs.k8s.io/cluster-api v1.13.6
	sigs.k8s.io/gateway-api v1.6.3
)
