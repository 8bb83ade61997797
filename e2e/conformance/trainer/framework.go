// Package framework runs Trainer's manager, as its own package of this name does, beside the CustomResourceDefinition of this
// project. As there, nobody defaults JobSets: the suites compare what Trainer applies with what is stored.
package framework

import (
	"context"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	coscheduling "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	"github.com/kubeflow/trainer/v2/test/program"
)

// Framework is what the suites know: an API server, and Trainer's manager in this process.
type Framework struct {
	environment *envtest.Environment
	cleanUp     []func() error
}

// manifests is a folder of Trainer's own manifests.
func manifests(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "..", "manifests"}, path...)...)
}

// Init starts an API server that has all resources.
func (f *Framework) Init() *rest.Config {
	ginkgo.GinkgoHelper()
	ctrl.SetLogger(zap.New(zap.WriteTo(ginkgo.GinkgoWriter), zap.UseDevMode(true)))
	crds := program.CRDs()
	crds.Paths = append(crds.Paths, manifests("base", "crds"), manifests("external-crds", "scheduler-plugins"),
		manifests("external-crds", "volcano"))
	f.environment = &envtest.Environment{
		CRDInstallOptions: crds,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			Paths: []string{manifests("base", "webhook", "manifests.yaml")},
		},
	}
	config, err := f.environment.Start()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	f.cleanUp = append(f.cleanUp, f.environment.Stop)

	return config
}

// RunManager runs Trainer's webhooks, and its controllers where they are wanted.
func (f *Framework) RunManager(config *rest.Config, controllers bool) (context.Context, client.Client) {
	ginkgo.GinkgoHelper()
	for _, add := range []func(*runtime.Scheme) error{
		trainer.AddToScheme, jobset.AddToScheme, coscheduling.AddToScheme, volcano.AddToScheme,
	} {
		gomega.Expect(add(scheme.Scheme)).To(gomega.Succeed())
	}
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())

	serving := f.environment.WebhookInstallOptions
	server := webhook.NewServer(webhook.Options{
		Host: serving.LocalServingHost, Port: serving.LocalServingPort, CertDir: serving.LocalServingCertDir,
	})
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server,
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	runtimes, err := core.New(ctx, mgr.GetClient(), mgr.GetFieldIndexer(), nil)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	if controllers {
		// The suites make more than one manager in this process.
		options := ctrlpkg.Options{SkipNameValidation: ptr.To(true)}
		failed, err := controller.SetupControllers(mgr, runtimes, options)
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), failed)
	}
	failed, err := webhooks.Setup(mgr, runtimes)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), failed)

	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	f.cleanUp = append(f.cleanUp, func() error {
		cancel()
		return <-ended
	})
	gomega.Eventually(func() error { return server.StartedChecker()(nil) }).Should(gomega.Succeed())
	return ctx, direct
}

// Teardown ends all of it, the last first.
func (f *Framework) Teardown() {
	ginkgo.GinkgoHelper()
	for i := len(f.cleanUp) - 1; i >= 0; i-- {
		gomega.Expect(f.cleanUp[i]()).To(gomega.Succeed())
	}
	f.cleanUp = nil
}
