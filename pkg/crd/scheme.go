package crd

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme adds the Go types of CRDs, apiextensions.k8s.io/v1, to a scheme.
func AddToScheme(s *runtime.Scheme) error { return apiextensionsv1.AddToScheme(s) }
