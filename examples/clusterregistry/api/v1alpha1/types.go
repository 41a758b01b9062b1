package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is clusterregistry.k8s.io/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "clusterregistry.k8s.io", Version: "v1alpha1"}
}

// AddToScheme adds the types to a scheme, for clients.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Cluster{}, &ClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// Cluster says where a cluster is and how to authenticate. It has no secrets. Labels and annotations
// say what else is to know: region, cloud, environment.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec,omitempty"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterList is a list of clusters.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec is what a registrar knows of a cluster.
type ClusterSpec struct {
	// KubernetesAPIEndpoints say how to reach the API server.
	KubernetesAPIEndpoints KubernetesAPIEndpoints `json:"kubernetesApiEndpoints,omitempty"`
	// AuthInfo says where credentials are.
	AuthInfo AuthInfo `json:"authInfo,omitempty"`
}

// KubernetesAPIEndpoints are the addresses of an API server.
type KubernetesAPIEndpoints struct {
	// ServerEndpoints are the addresses, each for clients in a network. The first that is for a client counts.
	ServerEndpoints []ServerAddressByClientCIDR `json:"serverEndpoints,omitempty"`
	// CABundle is what the certificates of all addresses are verified with, in PEM. Empty: what the client trusts anyway.
	CABundle []byte `json:"caBundle,omitempty"`
}

// ServerAddressByClientCIDR is an address for some clients.
type ServerAddressByClientCIDR struct {
	// ClientCIDR is the network of the clients that the address is for. Empty: all.
	ClientCIDR string `json:"clientCIDR,omitempty"`
	// ServerAddress is a URL, a host, or a host and port.
	ServerAddress string `json:"serverAddress,omitempty"`
}

// AuthInfo refers to credentials.
type AuthInfo struct {
	// User refers to what has the credentials of users, who can get them if they have the rights.
	User *ObjectReference `json:"user,omitempty"`
	// Controller refers to what has the credentials of controllers.
	Controller *ObjectReference `json:"controller,omitempty"`
}

// ObjectReference refers to an object in this or another server.
type ObjectReference struct {
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// ClusterStatus is what was seen of a cluster.
type ClusterStatus struct {
	// Version is the version that the API server last said it has.
	Version string `json:"version,omitempty"`
	// Conditions of the cluster.
	Conditions []ClusterCondition `json:"conditions,omitempty"`
}

// ClusterOK is the type of the condition that says whether a cluster answers.
const ClusterOK = "OK"

// ClusterCondition is one condition.
type ClusterCondition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
	// LastHeartbeatTime is when the cluster last answered.
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime,omitempty"`
	// LastTransitionTime is when the status changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for programs, and Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
