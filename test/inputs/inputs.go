// Package inputs names the projects whose CustomResourceDefinitions the tests
// install. It is a module of its own so that what these projects require does
// not raise the versions the library is tested with. Nothing of it is compiled:
// the tests read the YAML that the modules ship (see test/crds).
package inputs

// One small package of each module keeps the requirement.
import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/acme"
	_ "github.com/crossplane/crossplane/v2/test/e2e/certificate"
	_ "sigs.k8s.io/cluster-api/errors"
	_ "sigs.k8s.io/gateway-api/pkg/consts"
)
