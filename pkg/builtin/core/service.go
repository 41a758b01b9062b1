package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Services is the part that serves services (v1) with their status
// sub-resource. They are records, for controllers and clients to read: without
// nodes there is no service network, and nothing is allocated from one unless the
// fields say so.
//
//   - ExternalName and headless services (clusterIP None) are as in Kubernetes.
//   - Without ClusterIPs, a service of type ClusterIP is kept with the clusterIP that
//     it was given. Without one it has none, and kubectl get shows <none>.
//     ipFamilies and ipFamilyPolicy are kept as given.
//   - NodePort and LoadBalancer services are kept as well, without NodePorts with the
//     nodePort they were given. A healthCheckNodePort is kept as given, and may be
//     missing. The status of a load balancer is there for a controller to write.
//   - Defaults, validation and immutable fields are those of Kubernetes otherwise.
//   - There is no proxy sub-resource, and Endpoints of the same name are not
//     deleted with a service.
type Services struct {
	// ClusterIPs is a network, such as "198.18.0.0/16", from which services get an
	// address, as in Kubernetes: one that asks for an address outside of it, or for
	// that of another service, is refused. ipFamilies and ipFamilyPolicy describe the
	// address. Nobody is reached there: controllers and clients expect an address. Of
	// two networks, separated by a comma, the first counts. The first address is for
	// service kubernetes: it is only given to who asks for it. At most 65,533 are given
	// unasked. Empty: none is given, and none is checked.
	ClusterIPs string
	// NodePorts are ports, such as "30000-32767", that services of type NodePort and
	// LoadBalancer get, as in Kubernetes. Empty: none is given, and none is checked.
	NodePorts string
}

// Install adds services to the core group, and what gives them addresses and ports.
func (s Services) Install(p *controlplane.Plan) error {
	given, err := newAllocation(s.ClusterIPs, s.NodePorts)
	if err != nil {
		return err
	}
	if given != nil {
		p.Admit("addresses of services", given)
	}
	return shared().Serve(p, services())
}

func services() *apis.Definition {
	return apis.Resource[corev1.Service, corev1.ServiceList]("services",
		apis.StatusAndMetadata(),
		apis.ShortNames("svc"),
		apis.Categories("all"),
		apis.NoGeneration(),
		apis.CreateOnUpdate(),
		// Since 1.36, a name may begin with a digit (KEP-5311).
		apis.NameValidation(apivalidation.NameIsDNSLabel),
		apis.Default(defaultService),
		apis.PrepareForCreate(func(_ context.Context, s *corev1.Service) { fillClusterIPs(s) }),
		apis.PrepareForUpdate(prepareServiceUpdate),
		apis.Validate(validateService),
		apis.ValidateUpdate(validateServiceUpdate),
		apis.Warn(serviceWarnings),
		apis.SelectableFields(map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
			"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
		}),
		serviceColumns(),
	)
}

func serviceColumns() apis.Option {
	docs := corev1.ServiceSpec{}.SwaggerDoc()
	return apis.Columns(serviceRow,
		metav1.TableColumnDefinition{Name: "Type", Type: "string", Description: docs["type"]},
		metav1.TableColumnDefinition{Name: "Cluster-IP", Type: "string", Description: docs["clusterIP"]},
		metav1.TableColumnDefinition{Name: "External-IP", Type: "string", Description: docs["externalIPs"]},
		metav1.TableColumnDefinition{Name: "Port(s)", Type: "string", Description: docs["ports"]},
		metav1.TableColumnDefinition{Name: "Selector", Type: "string", Priority: 1, Description: docs["selector"]},
	)
}

// defaultService fills in what does not depend on a service network.
func defaultService(s *corev1.Service) {
	spec := &s.Spec
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		setDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if isExternal(s) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		setDefault(&spec.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster))
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		defaultLoadBalancer(s)
	}
}

func defaultLoadBalancer(s *corev1.Service) {
	setDefault(&s.Spec.AllocateLoadBalancerNodePorts, new(true))
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			setDefault(&ingress.IPMode, new(corev1.LoadBalancerIPModeVIP))
		}
	}
}

// setDefault sets a value that is empty.
func setDefault[T comparable](value *T, to T) {
	var zero T
	if *value == zero {
		*value = to
	}
}

// isExternal tells whether the service can be reached from outside.
func isExternal(s *corev1.Service) bool {
	return hasNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// hasNodePorts tells whether ports of the service may have a nodePort.
func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || isLoadBalancer(s)
}

func isLoadBalancer(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

// hasHealthCheck tells whether load balancers ask nodes about the service.
func hasHealthCheck(s *corev1.Service) bool {
	return isLoadBalancer(s) && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func serviceRow(s *corev1.Service) []any {
	clusterIP, ports := "", make([]string, len(s.Spec.Ports))
	if len(s.Spec.ClusterIPs) > 0 {
		clusterIP = s.Spec.ClusterIPs[0]
	}
	for i, p := range s.Spec.Ports {
		ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			ports[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	external := externalIP(s)
	portList := strings.Join(ports, ",")
	for _, cell := range []*string{&clusterIP, &external, &portList} {
		setDefault(cell, "<none>")
	}
	return []any{string(s.Spec.Type), clusterIP, external, portList, labels.FormatLabels(s.Spec.Selector)}
}

func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		return cmp.Or(strings.Join(append(ingressNames(s), s.Spec.ExternalIPs...), ","), "<pending>")
	}
	return strings.Join(s.Spec.ExternalIPs, ",")
}

// ingressNames are the addresses of a load balancer, or its host names.
func ingressNames(s *corev1.Service) []string {
	var all []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if name := cmp.Or(ingress.IP, ingress.Hostname); name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
