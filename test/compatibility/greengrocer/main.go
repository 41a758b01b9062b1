// Command greengrocer is a function of Crossplane, as its users write them: it composes a
// ConfigMap from a store.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/crossplane/function-sdk-go"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"github.com/crossplane/function-sdk-go/resource"
	"github.com/crossplane/function-sdk-go/response"
)

func main() {
	address := flag.String("address", ":9443", "where to listen")
	certificates := flag.String("tls-certs-dir", "", "folder with tls.crt, tls.key and ca.crt, for those who call")
	flag.Parse()
	if err := function.Serve(greengrocer{}, function.Listen("tcp", *address), function.MTLSCertificates(*certificates)); err != nil {
		fmt.Fprintln(os.Stderr, "greengrocer:", err)
		os.Exit(1)
	}
}

type greengrocer struct {
	fnv1.UnimplementedFunctionRunnerServiceServer
}

// RunFunction wants a ConfigMap that says what the store sells. It is ready when it is there.
func (greengrocer) RunFunction(_ context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	// Crossplane asks again after this time, and so finds what somebody else changed.
	rsp := response.To(req, 5*time.Second)
	store, err := request.GetObservedCompositeResource(req)
	if err != nil {
		response.Fatal(rsp, err)
		return rsp, nil
	}
	fruit, err := store.Resource.GetString("spec.fruit")
	if err != nil {
		response.Fatal(rsp, err)
		return rsp, nil
	}
	there, err := request.GetObservedComposedResources(req)
	if err != nil {
		response.Fatal(rsp, err)
		return rsp, nil
	}
	shelf := resource.NewDesiredComposed()
	shelf.Resource.SetAPIVersion("v1")
	shelf.Resource.SetKind("ConfigMap")
	if err := shelf.Resource.SetString("data.fruit", fruit); err != nil {
		response.Fatal(rsp, err)
		return rsp, nil
	}
	if _, ok := there["shelf"]; ok {
		shelf.Ready = resource.ReadyTrue
	}
	if err := response.SetDesiredComposedResources(rsp, map[resource.Name]*resource.DesiredComposed{"shelf": shelf}); err != nil {
		response.Fatal(rsp, err)
	}
	return rsp, nil
}
