package aggregator

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// guarded returns why something may not be created at a server that is guarded.
func (x *router) guarded(r *http.Request, s *server) error {
	info, ok := request.RequestInfoFrom(r.Context())
	if s.given == nil || !s.given.Guard || s.given.Admission { // which is more
		return nil
	}
	if !ok || !info.IsResourceRequest || info.Subresource != "" || info.Namespace == "" {
		return nil
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	switch info.Verb {
	case "create":
	case "update", "patch": // which may create, too
		if info.Verb == "patch" && r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType) &&
			r.Header.Get("Content-Type") != string(types.ApplyCBORPatchType) {
			return nil
		}
		if there, err := s.has(r.Context(), gvr, info.Namespace, info.Name); there || err != nil {
			return err
		}
	default:
		return nil
	}
	who, _ := request.UserFrom(r.Context())
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: info.Name, Namespace: info.Namespace}}
	dryRun := r.URL.Query().Has("dryRun")
	return x.plane.AdmitAggregated(r.Context(), admission.NewAttributesRecord(
		object, nil, s.kindOf(gvr), info.Namespace, info.Name, gvr, "", admission.Create, &metav1.CreateOptions{}, dryRun, who))
}

// kindOf is the kind of a resource, as the server said.
func (s *server) kindOf(gvr schema.GroupVersionResource) schema.GroupVersionKind {
	for _, r := range s.state.Load().found[gvr.GroupVersion()].Resources {
		if r.Resource == gvr.Resource && r.ResponseKind != nil {
			return gvr.GroupVersion().WithKind(r.ResponseKind.Kind)
		}
	}
	return gvr.GroupVersion().WithKind("")
}

// has asks the server, as this one, whether it has an object.
func (s *server) has(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (bool, error) {
	response, asked, err := s.get(ctx, pathOf(gvr.GroupVersion())+"/namespaces/"+namespace+"/"+gvr.Resource+"/"+name, nil)
	if err != nil {
		return false, unavailable(gvr.GroupVersion(), s)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, badGateway((&statusError{asked, response.StatusCode}).Error())
}
