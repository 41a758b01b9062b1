package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdStorage asks for a storage with the API of etcd (v3) for one API server. The server lends it on
// its own port: what the API server writes with its client certificate, nobody else sees.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type EtcdStorage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the API server needs.
	Spec EtcdStorageSpec `json:"spec"`
	// Status is what it has, filled in by the server.
	Status EtcdStorageStatus `json:"status,omitzero"`
}

// EtcdStorageSpec is what an API server needs: the files for its flags, and room.
type EtcdStorageSpec struct {
	// ClientCertificate is where the server writes the certificate and the key with which the API server
	// connects (--etcd-certfile, --etcd-keyfile). It cannot be changed. Required.
	ClientCertificate CertificateDestination `json:"clientCertificate"`
	// Authority is where the server writes the certificate authorities that have signed the certificate of
	// the endpoint (--etcd-cafile). It cannot be changed. Required.
	Authority AuthorityDestination `json:"authority"`
	// RotateAfter is the age at which the client certificate is replaced: from 10m to 8760h. Replaced
	// certificates are valid for at least as long again. Default: 720h.
	RotateAfter *metav1.Duration `json:"rotateAfter,omitempty"`
	// Limits bound what is stored and how much it is used. What is left out has the greatest value that
	// the operator of the server allows.
	Limits EtcdStorageLimits `json:"limits,omitzero"`
	// Storage is the name of the storage that has the data, one of those that the operator of the server
	// named. Default: the one that the server uses itself.
	Storage string `json:"storage,omitempty"`
	// KeepData keeps the data when this object is deleted. By default it is deleted, too.
	KeepData bool `json:"keepData,omitempty"`
}

// CertificateDestination is where a client certificate is written.
type CertificateDestination struct {
	// Secret is one of type kubernetes.io/tls: tls.crt has the certificate, tls.key its key. It is made if
	// it does not exist; one that somebody else made is never changed. Required.
	Secret Destination `json:"secret"`
}

// AuthorityDestination is where certificate authorities are written.
type AuthorityDestination struct {
	// ConfigMap has the authorities in ca.crt: the current ones, and those that were current in the last 30
	// days. It is made if it does not exist; one that somebody else made is never changed. Required.
	ConfigMap Destination `json:"configMap"`
}

// Destination is an object that the server writes.
type Destination struct {
	// Namespace is that of the object; it must exist. Required.
	Namespace string `json:"namespace"`
	// Name is that of the object. Required.
	Name string `json:"name"`
}

// EtcdStorageLimits bound one storage. Each is at least 1 and at most what the operator of the server allows.
type EtcdStorageLimits struct {
	// Keys is the number of keys.
	Keys *int64 `json:"keys,omitempty"`
	// Bytes is the size of all keys with their values.
	Bytes *resource.Quantity `json:"bytes,omitempty"`
	// ValueBytes is the size of one value.
	ValueBytes *resource.Quantity `json:"valueBytes,omitempty"`
	// Watches is the number of watches that are open at the same time, over all connections.
	Watches *int64 `json:"watches,omitempty"`
	// WritesPerSecond is the number of puts and deletions in a second.
	WritesPerSecond *int64 `json:"writesPerSecond,omitempty"`
}

// EtcdStorageStatus is what an API server has.
type EtcdStorageStatus struct {
	// Endpoint is where the storage is served (--etcd-servers).
	Endpoint string `json:"endpoint,omitempty"`
	// Storage is the name of the storage that has the data now.
	Storage string `json:"storage,omitempty"`
	// PreviousStorage is the name of another storage that has data of this one, which is to be deleted: the one
	// that it was moved from or, while it moves or after that was given up, the one it was to be moved to.
	PreviousStorage string `json:"previousStorage,omitempty"`
	// RestoredAt is when the data was last replaced by that of a backup.
	RestoredAt *metav1.Time `json:"restoredAt,omitempty"`
	// Used is what is stored. It is measured from time to time.
	Used *EtcdStorageUsage `json:"used,omitempty"`
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready: the storage can be used, with what the destinations have.
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// EtcdStorageUsage is how much is stored.
type EtcdStorageUsage struct {
	// Keys is the number of keys.
	Keys int64 `json:"keys"`
	// Bytes is the size of all keys with their values.
	Bytes int64 `json:"bytes"`
}

// EtcdStorageList is a list of EtcdStorages.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type EtcdStorageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the EtcdStorages.
	Items []EtcdStorage `json:"items"`
}
