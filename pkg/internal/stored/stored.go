// Package stored reads the metadata of objects as they are stored, of whichever type they are.
package stored

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is the part of a stored object that every type has.
type Object struct {
	metav1.TypeMeta
	Metadata Metadata `json:"metadata"`
}

// Metadata is what is needed of an object's metadata.
type Metadata struct {
	Name              string                  `json:"name"`
	Namespace         string                  `json:"namespace"`
	UID               string                  `json:"uid"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
	Finalizers        []string                `json:"finalizers"`
	OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
}

// protobufMagic starts a value that is stored as protobuf.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func protobufMagic() []byte { return []byte{'k', '8', 's', 0} }

// Decode reads the metadata of a stored value, JSON or protobuf. In protobuf the first field of every
// Kubernetes type is the ObjectMeta.
func Decode(value []byte) (*Object, error) {
	s := &Object{}
	if !bytes.HasPrefix(value, protobufMagic()) {
		if err := json.Unmarshal(value, s); err != nil {
			return nil, err
		}
		return s, nil
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(value[len(protobufMagic()):]); err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	if err := object.Unmarshal(unknown.Raw); err != nil {
		return nil, err
	}
	s.APIVersion, s.Kind = unknown.APIVersion, unknown.Kind
	s.Metadata = Metadata{
		Name: object.Name, Namespace: object.Namespace, UID: string(object.UID), DeletionTimestamp: object.DeletionTimestamp,
		Finalizers: object.Finalizers, OwnerReferences: object.OwnerReferences,
	}
	return s, nil
}
