package v1

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "example.com/guestbook/api/v1"
)

var _ = Describe("Guestbook Webhook", func() {
	var book *webappv1.Guestbook

	BeforeEach(func() {
		book = &webappv1.Guestbook{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "hut-"},
			Spec:       webappv1.GuestbookSpec{Title: "the hut"},
		}
	})

	Context("When creating Guestbook under Defaulting Webhook", func() {
		It("greets with the title", func() {
			Expect(k8sClient.Create(ctx, book)).To(Succeed())
			Expect(book.Spec.Greeting).To(Equal("Welcome to the hut!"))
		})

		It("leaves a greeting alone", func() {
			book.Spec.Greeting = "Hello"
			Expect(k8sClient.Create(ctx, book)).To(Succeed())
			Expect(book.Spec.Greeting).To(Equal("Hello"))
		})
	})

	Context("When creating, updating or deleting Guestbook under Validating Webhook", func() {
		oneLine := And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("must be one line")))

		It("refuses to create one whose title has two lines", func() {
			book.Spec.Title = "the\nhut"
			Expect(k8sClient.Create(ctx, book)).To(oneLine)
		})

		It("refuses to update one to a title of two lines", func() {
			Expect(k8sClient.Create(ctx, book)).To(Succeed())
			book.Spec.Title = "the\nhut"
			Expect(k8sClient.Update(ctx, book)).To(oneLine)
		})

		It("keeps what is to be kept", func() {
			book.Annotations = map[string]string{KeepAnnotation: "true"}
			Expect(k8sClient.Create(ctx, book)).To(Succeed())
			Expect(k8sClient.Delete(ctx, book)).To(MatchError(ContainSubstring("remove the annotation " + KeepAnnotation)))

			unkept := client.MergeFrom(book.DeepCopy())
			delete(book.Annotations, KeepAnnotation)
			Expect(k8sClient.Patch(ctx, book, unkept)).To(Succeed())
			Expect(k8sClient.Delete(ctx, book)).To(Succeed())
		})

		It("warns of servers that know nothing of each other", func() {
			book.Spec.Storage, book.Spec.Replicas = "Memory", new(int32(2))
			Expect((&GuestbookValidator{}).ValidateCreate(ctx, book)).To(ConsistOf(ContainSubstring("its own entries")))
		})
	})
})
