// Package openapi has what a plane's OpenAPI documents are made from: a [Source]
// lists what it has with a cheap tag each, and builds a document when a client first
// asks for it. The plane answers the index, If-None-Match and hashes from the tags.
//
// A part gives its source to the plane with the groups it serves, see
// controlplane.DynamicGroups and controlplane.Link.
package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Source provides documents. A plane asks it on every request, so both methods
// must be cheap, and safe for concurrent use.
type Source interface {
	// Documents lists the OpenAPI v3 documents the source has now. After an error the
	// documents of the other sources are still served.
	Documents(context.Context) ([]Document, error)
	// V2 returns the source's part of the OpenAPI v2 document.
	V2(context.Context) (Swagger, error)
}

// Document is one OpenAPI v3 document of one source. Documents of several
// sources with the same path are merged; the first source wins a conflict.
type Document struct {
	// Path is the path below /openapi/v3: "api/v1", "apis/apps/v1", "version".
	Path string
	// Tag changes whenever the content may change in the life of the program's
	// binary (the plane adds the binary's own fingerprint).
	Tag string
	// Shared says that in this process Path and Tag determine the content, so that
	// planes of the process share the bytes.
	Shared bool
	// Build makes the document. The result is not modified. The client gets the error,
	// and the next request builds again.
	Build func(context.Context) (*spec3.OpenAPI, error)
	// JSON returns the document as it is, for one that another server wrote. It takes the
	// place of Build where nothing is merged with it. May be nil.
	JSON func(context.Context) ([]byte, error)
}

// Swagger is the OpenAPI v2 contribution of one source.
type Swagger struct {
	// Tag is as Document.Tag.
	Tag string
	// Shared is as Document.Shared.
	Shared bool
	// Build makes the contribution. The result is not modified. Nil: the
	// source has nothing to add.
	Build func(context.Context) (*spec.Swagger, error)
}

// Digest makes a tag of the given words: 32 hexadecimal digits.
func Digest(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		_, _ = io.WriteString(h, w)
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
