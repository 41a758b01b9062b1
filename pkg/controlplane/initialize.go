package controlplane

import (
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// initialize gives an admission plugin what it asks for.
func (p *Plane) initialize(
	plugin admission.Interface, client kubernetes.Interface, authorizer authorizer.Authorizer,
) error {
	dynamicClient, err := dynamic.NewForConfig(p.loopback.config)
	if err != nil {
		return fmt.Errorf("dynamic client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	initializer.New(client, dynamicClient, p.informers, authorizer, utilfeature.DefaultFeatureGate,
		effectiveVersion(), p.signals.drained, mapper).Initialize(plugin)
	return nil
}
